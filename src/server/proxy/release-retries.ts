/**
 * Releases claims without an owner at a proxy's store. A release that failed is repeated as soon as the store answers any
 * call: where claims last as long as the proxy's own session, they would otherwise stay forever.
 *
 * Invariant: a claim that its client has requested again meanwhile is not released.
 */

import type { Driver } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { Logger } from "../logger.ts";
import type { ProxiedClaim, ProxiedClaims } from "./proxied-claims.ts";

/** Maximum number of claims in one release. */
const BATCH_SIZE = 500;

export class ReleaseRetries {
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #claims: ProxiedClaims;
  readonly #pending = new Set<ProxiedClaim>();
  #isRetrying = false;

  /** claims: the claims that have an owner. */
  constructor(driver: Driver, clock: Clock, log: Logger, claims: ProxiedClaims) {
    this.#claims = claims;
    this.#driver = driver;
    this.#clock = clock;
    this.#log = log;
  }

  /** Releases claims that no client wants any more. */
  release(claims: readonly ProxiedClaim[]): void {
    this.#release(claims).catch((error: unknown) => {
      for (const proxied of claims) this.#pending.add(proxied);
      this.#log("cannot release the claims of a disconnected client; trying again", error);
    });
  }

  /** The store has answered a call: repeats the failed releases, one batch at a time. */
  retry(): void {
    if (this.#pending.size === 0 || this.#isRetrying) return;
    const now = this.#clock.now();
    const batch: ProxiedClaim[] = [];
    for (const proxied of this.#pending) {
      const { id, ttlMs } = proxied.claim;
      const isExpired = ttlMs !== "session" && now > proxied.expiresAt;
      if (isExpired || this.#claims.get(id) !== undefined) this.#pending.delete(proxied);
      else if (batch.length < BATCH_SIZE) batch.push(proxied);
    }
    if (batch.length === 0) return;
    this.#isRetrying = true;
    this.#release(batch).then(
      () => {
        this.#isRetrying = false;
        for (const proxied of batch) this.#pending.delete(proxied);
        this.retry();
      },
      () => {
        this.#isRetrying = false; // again, when the store answers something else
      },
    );
  }

  async #release(claims: readonly ProxiedClaim[]): Promise<void> {
    await this.#driver.release(
      claims.map(({ claim, unansweredCalls }) => ({ claim, hasUnansweredClaim: unansweredCalls > 0 })),
    );
  }
}
