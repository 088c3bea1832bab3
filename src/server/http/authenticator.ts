/** Who asks: a credential in the Authorization header, and nowhere else. */

import type { IncomingMessage } from "node:http";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { AccessControl, Principal } from "../auth/access-control.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { LockService } from "../service.ts";
import { invalidField, Problem } from "./problem.ts";
import type { Route } from "./request-context.ts";

/** Wrong credentials are counted for so long (failures.ts). */
const MINUTE_MS = 60_000;

export class HttpAuthenticator {
  readonly #service: LockService;
  readonly #access: AccessControl;
  /** Answers to wrong credentials that are held back. */
  #delayedCount = 0;

  constructor(service: LockService, access: AccessControl) {
    this.#service = service;
    this.#access = access;
  }

  /**
   * @throws ProtocolError AUTH, after a while; Problem LIMIT if too many wrong credentials came from this address, or if
   * there is something else than a bearer's credential
   */
  async authenticate(
    route: Route,
    { headers }: IncomingMessage,
    address: string,
    disconnected: AbortSignal,
  ): Promise<Principal> {
    // these tell nothing of locks: a load balancer asks them without a credential
    if (route.isPublic === true) return ANONYMOUS;
    const credential = parseBearerCredential(headers.authorization);
    try {
      return this.#access.authenticate(credential, address);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#service.rejectionLog.record(error, address);
      if (error.code === "LIMIT") throw new Problem(429, "LIMIT", "credential", error.message, { retryMs: MINUTE_MS });
      await this.#delayRefusal(disconnected);
      throw error;
    }
  }

  async #delayRefusal(disconnected: AbortSignal): Promise<void> {
    const { limits, clock } = this.#service;
    if (this.#delayedCount >= limits.refusals || limits.refusalMs === 0 || disconnected.aborted) return;
    this.#delayedCount++;
    await new Promise<void>((resolve) => {
      const timer = clock.timer(resolve);
      timer.set(clock.now() + limits.refusalMs);
      disconnected.addEventListener("abort", () => {
        timer.stop();
        resolve();
      });
    });
    this.#delayedCount--;
  }
}

function parseBearerCredential(header: string | undefined): string | null {
  if (header === undefined) return null;
  const match = /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(header);
  if (match === null) throw invalidField("authorization", "malformed", "Authorization must be: Bearer CREDENTIAL");
  return match[1] as string;
}
