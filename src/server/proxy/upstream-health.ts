/**
 * Whether the store behind a relay answers, and what the log has of it. A client's call that was answered says yes. One that failed says nothing, since
 * the call itself may be at fault; then, and where there was none lately, a call of our own that changes nothing tells.
 * The store is asked only when somebody wants to know.
 */

import type { Claim, Driver } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { randomId } from "../../util/ids.ts";
import type { Logger } from "../config/logger.ts";

/** So old may be what is known. */
const MAX_AGE_MS = 2_000;
/** A store that has not answered for so long does not answer. */
const PROBE_TIMEOUT_MS = 3_000;
/** An outage is over when the store answers so long after the last call that failed. */
const OUTAGE_END_MS = 1_000;

/** Calls that fail one after the other, or among others that do not. */
interface Outage {
  readonly startedAt: number;
  lastFailureAt: number;
  failedCalls: number;
}

export class UpstreamHealth {
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #log: Logger;
  #outage: Outage | null = null;
  #isAnswering = true;
  #lastAnswerAt: number;
  /** When our own call that is under way was made; null: none is. */
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

  /** A call has failed, through no fault of its own. The log has the first one, and at the end how many there were. */
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

  /** Why nothing can be granted, as far as is known; null: it can. Asks the store if that was long ago. */
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
    this.#driver.renew([createProbeClaim()]).then(
      () => {
        this.#probeStartedAt = null;
        this.recordSuccess();
      },
      () => {
        this.#probeStartedAt = null;
        this.#isAnswering = false;
        this.#lastAnswerAt = this.#clock.now();
      },
    );
  }
}

/** A claim that was never placed: the store knows nothing of it. */
function createProbeClaim(): Claim {
  const hold = { key: "holdfast-ready", permits: ALL_PERMITS, limit: ALL_PERMITS };
  return { id: randomId(), holds: [hold], ttlMs: 30_000, tokens: 1, floor: 0n, wait: false, label: "" };
}
