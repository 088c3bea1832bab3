/**
 * When waiting claims of a database without pushes are rechecked: often at first, since most locks are short, then less.
 * All claims of a process are rechecked at the same times, so that one statement serves them all.
 */

import type { ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";

/** How often a database without pushes is asked. */
export interface RecheckIntervals {
  /** While the claim has waited for less than `firstMs`. */
  readonly shortMs: number;
  readonly firstMs: number;
  /** Afterwards. */
  readonly longMs: number;
}

export class RecheckTimes {
  readonly #intervals: RecheckIntervals;
  readonly #clock: Clock;
  /** When each waiting claim was first seen waiting, by this process's clock. */
  readonly #waitingSince = new Map<ClaimId, number>();

  constructor(intervals: RecheckIntervals, clock: Clock) {
    this.#intervals = intervals;
    this.#clock = clock;
  }

  /** In how many milliseconds to recheck a claim that waits, at most `maxMs`. */
  next(id: ClaimId, maxMs: number): number {
    const now = this.#clock.now();
    const since = this.#waitingSince.get(id);
    if (since === undefined) this.#waitingSince.set(id, now);
    const { shortMs, firstMs, longMs } = this.#intervals;
    const intervalMs = now - (since ?? now) < firstMs ? shortMs : longMs;
    // a little early: the core rounds up to milliseconds, and must meet the same one for all claims
    const untilNextMs = intervalMs - (now % intervalMs) - 0.5;
    return Math.min(untilNextMs < 1 ? untilNextMs + intervalMs : untilNextMs, maxMs);
  }

  /** The claim does not wait any more. */
  forget(id: ClaimId): void {
    this.#waitingSince.delete(id);
  }
}
