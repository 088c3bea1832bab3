/**
 * What nobody wants any more is given back to a relay's store. What the store did not take back is offered again as soon
 * as it answers anything: of a store whose claims last as long as the relay's own session it would else stay for ever.
 *
 * Invariant: what its client has come back for meanwhile is wanted again, and not offered.
 */

import type { Clock } from "../clock.ts";
import type { Driver } from "../spi/driver.ts";
import type { Log } from "./logging.ts";
import type { Relayed, RelayedClaims } from "./relayed.ts";

/** In one release. */
const BATCH = 500;

export class Leftovers {
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #claims: RelayedClaims;
  readonly #left = new Set<Relayed>();
  #isOffering = false;

  /** claims: those that are wanted. */
  constructor(driver: Driver, clock: Clock, log: Log, claims: RelayedClaims) {
    this.#claims = claims;
    this.#driver = driver;
    this.#clock = clock;
    this.#log = log;
  }

  /** Tells the store that nobody wants these any more. */
  giveBack(left: readonly Relayed[]): void {
    this.#release(left).catch((error: unknown) => {
      for (const known of left) this.#left.add(known);
      this.#log("the claims of a client that has gone could not be released yet", error);
    });
  }

  /** The store answers: what is left over is offered again, a batch at a time. */
  offer(): void {
    if (this.#left.size === 0 || this.#isOffering) return;
    const now = this.#clock.now();
    const batch: Relayed[] = [];
    for (const known of this.#left) {
      const { id, ttlMs } = known.claim;
      const isForgotten = ttlMs !== "session" && now > known.until;
      if (isForgotten || this.#claims.get(id) !== undefined) this.#left.delete(known);
      else if (batch.length < BATCH) batch.push(known);
    }
    if (batch.length === 0) return;
    this.#isOffering = true;
    this.#release(batch).then(
      () => {
        this.#isOffering = false;
        for (const known of batch) this.#left.delete(known);
        this.offer();
      },
      () => {
        this.#isOffering = false; // again, when the store answers something else
      },
    );
  }

  async #release(left: readonly Relayed[]): Promise<void> {
    const unanswered = new Set(left.filter((known) => known.unanswered > 0).map(({ claim }) => claim.id));
    await this.#driver.release(
      left.map(({ claim }) => claim),
      unanswered,
    );
  }
}
