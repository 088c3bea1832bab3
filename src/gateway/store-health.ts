/**
 * Tracks whether the store of a gateway responds, and logs outages. A client's call that was answered proves it; one
 * that failed proves nothing, since the call itself may be at fault. In that case, and without a recent call, a
 * harmless call of our own decides. The store is probed only on request.
 */

import type { Logger } from "../server/logger.ts";
import type { Claim, Driver } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { randomId } from "../util/ids.ts";

/** The maximum age of the last result. */
const MAX_AGE_MS = 2_000;
/** A store that takes longer than this counts as unreachable. */
const PROBE_TIMEOUT_MS = 3_000;
/** An outage is over when the store responds this long after the last failed call. */
const OUTAGE_END_MS = 1_000;

/** A series of failed calls, possibly with successful ones in between. */
interface Outage {
  readonly startedAt: number;
  lastFailureAt: number;
  failedCalls: number;
}

export class StoreHealth {
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #log: Logger;
  #outage: Outage | null = null;
  #isAnswering = true;
  #lastAnswerAt: number;
  /** Start time of the pending probe; null: none. */
  #probeStartedAt: number | null = null;

  constructor(driver: Driver, clock: Clock, log: Logger) {
    this.#driver = driver;
    this.#clock = clock;
    this.#log = log;
    this.#lastAnswerAt = clock.now();
  }

  recordSuccess(): void {
    this.#isAnswering = true;
    this.#lastAnswerAt = this.#clock.now();
    if (this.#outage !== null) this.#endOutage(this.#outage);
  }

  /**
   * Records a failed call that is not at fault itself. The log gets the first one, and at the end the number of them.
   */
  recordFailure(error: unknown): void {
    this.markSuspect();
    const now = this.#clock.now();
    if (this.#outage === null) this.#log(`${this.#driver.name} failed`, error);
    this.#outage ??= { startedAt: now, lastFailureAt: now, failedCalls: 0 };
    this.#outage.lastFailureAt = now;
    this.#outage.failedCalls++;
  }

  /** A call has failed. */
  markSuspect(): void {
    this.#lastAnswerAt = Number.NEGATIVE_INFINITY;
  }

  /** Why no locks can be granted, as far as known; null: they can. Probes the store if the last result is old. */
  unhealthyReason(): string | null {
    const now = this.#clock.now();
    if (this.#probeStartedAt === null && now - this.#lastAnswerAt >= MAX_AGE_MS) this.#probe(now);
    const isLate = this.#probeStartedAt !== null && now - this.#probeStartedAt >= PROBE_TIMEOUT_MS;
    return this.#isAnswering && !isLate ? null : `the store (${this.#driver.name}) cannot be reached`;
  }

  #endOutage({ startedAt, lastFailureAt, failedCalls: calls }: Outage): void {
    const now = this.#clock.now();
    if (now - lastFailureAt < OUTAGE_END_MS) return;
    this.#outage = null;
    this.#log(`${this.#driver.name} can be reached again`, undefined, { calls, ms: Math.round(now - startedAt) });
  }

  #probe(now: number): void {
    this.#probeStartedAt = now;
    const claim = createProbeClaim();
    this.#driver
      .renew([claim])
      .then(
        () => this.recordSuccess(),
        () => {
          this.#isAnswering = false;
          this.#lastAnswerAt = this.#clock.now();
        },
      )
      .finally(() => {
        this.#probeStartedAt = null;
        this.#driver.forget?.(claim);
      });
  }
}

/** A claim that was never placed, so the store does not know it. */
function createProbeClaim(): Claim {
  const spec = { key: "holdfast-ready", permits: ALL_PERMITS, limit: ALL_PERMITS };
  return { id: randomId(), locks: [spec], ttlMs: 30_000, tokenCount: 1, floor: 0n, wait: false, label: "" };
}
