/** Who asks: a credential in the Authorization header, and nowhere else. */

import type { IncomingMessage } from "node:http";
import { ProtocolError } from "../../protocol/hello.ts";
import type { Access, Principal } from "../access.ts";
import { ANYBODY } from "../access.ts";
import type { Hub } from "../hub.ts";
import type { Route } from "./call.ts";
import { invalid, Problem } from "./problem.ts";

/** Wrong credentials are counted for so long (failures.ts). */
const MINUTE_MS = 60_000;

export class Bouncer {
  readonly #hub: Hub;
  readonly #access: Access;
  /** Answers to wrong credentials that are held back. */
  #held = 0;

  constructor(hub: Hub, access: Access) {
    this.#hub = hub;
    this.#access = access;
  }

  /**
   * @throws ProtocolError AUTH, after a while; Problem LIMIT if too many wrong credentials came from this address, or if
   * there is something else than a bearer's credential
   */
  async letIn(route: Route, { headers }: IncomingMessage, address: string, gone: AbortSignal): Promise<Principal> {
    // these tell nothing of locks: a load balancer asks them without a credential
    if (route.open === true) return ANYBODY;
    const credential = credentialIn(headers.authorization);
    try {
      return this.#access.authenticate(credential, address);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#hub.rejections.add(error, address);
      if (error.code === "LIMIT") throw new Problem(429, "LIMIT", "credential", error.message, { retryMs: MINUTE_MS });
      await this.#holdBack(gone);
      throw error;
    }
  }

  async #holdBack(gone: AbortSignal): Promise<void> {
    const { limits, clock } = this.#hub;
    if (this.#held >= limits.refusals || limits.refusalMs === 0 || gone.aborted) return;
    this.#held++;
    await new Promise<void>((resolve) => {
      const timer = clock.timer(resolve);
      timer.set(clock.now() + limits.refusalMs);
      gone.addEventListener("abort", () => {
        timer.stop();
        resolve();
      });
    });
    this.#held--;
  }
}

function credentialIn(header: string | undefined): string | null {
  if (header === undefined) return null;
  const match = /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(header);
  if (match === null) throw invalid("authorization", "malformed", "Authorization must be: Bearer CREDENTIAL");
  return match[1] as string;
}
