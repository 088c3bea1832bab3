/** Authenticates requests by the credential in the Authorization header. */

import type { IncomingMessage } from "node:http";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { AccessControl, Principal } from "../auth/access-control.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { LockService } from "../service.ts";
import { invalidField, Problem } from "./problem.ts";
import type { Route } from "./request-context.ts";

/** The period in which wrong credentials of an address are counted. */
const MINUTE_MS = 60_000;

export class HttpAuthenticator {
  readonly #service: LockService;
  readonly #access: AccessControl;

  constructor(service: LockService, access: AccessControl) {
    this.#service = service;
    this.#access = access;
  }

  /**
   * @throws ProtocolError AUTH; Problem LIMIT after too many wrong credentials from this address; Problem
   * INVALID if the header is not a bearer credential
   */
  authenticate(route: Route, { headers }: IncomingMessage, address: string): Principal {
    // a load balancer probes the public routes without a credential
    if (route.isPublic === true) return ANONYMOUS;
    const credential = parseBearerCredential(headers.authorization);
    try {
      return this.#access.authenticate(credential, address);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#service.rejectionLog.record(error, address);
      if (error.code === "LIMIT") throw new Problem("LIMIT", "credential", error.message, { retryMs: MINUTE_MS });
      throw error;
    }
  }
}

function parseBearerCredential(header: string | undefined): string | null {
  if (header === undefined) return null;
  const match = /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(header);
  if (match === null) throw invalidField("authorization", "malformed", "Authorization must be: Bearer CREDENTIAL");
  return match[1] as string;
}
