/**
 * When waiting claims of a database without pushes are rechecked: often near the front of a queue that moves, seldom if
 * a wait is long. All claims of a process are rechecked at the same times, so that one statement serves them all.
 */

import type { Claim } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";

/**
 * How often a database without pushes is asked. `shortMs` is `nextMs` times a power of two, and `longMs` a multiple of
 * it, so that all claims meet the same times.
 */
export interface RecheckIntervals {
  /** If no waiter is ahead of the claim. Each waiter ahead doubles it, up to `shortMs`. */
  readonly nextMs: number;
  /** In the first `firstMs` of the wait; near the front since the queue has moved. */
  readonly shortMs: number;
  readonly firstMs: number;
  /** Afterwards. */
  readonly longMs: number;
}

/** The interval doubles when the queue has not moved for so many intervals: it stays a small part of the wait. */
const GROWTH = 8;

interface Wait {
  readonly waitersAhead: number | null;
  /**
   * When the claim was first seen waiting; near the front, when it was first seen in this place. By this process's
   * clock.
   */
  readonly since: number;
}

export class RecheckTimes {
  readonly #intervals: RecheckIntervals;
  readonly #clock: Clock;
  /** Weak: a claim may end without a further call. */
  readonly #waits = new WeakMap<Claim, Wait>();

  constructor(intervals: RecheckIntervals, clock: Clock) {
    this.#intervals = intervals;
    this.#clock = clock;
  }

  /** In how many milliseconds to recheck a claim that waits behind so many waiters (null: unknown), at most `maxMs`. */
  next(claim: Claim, waitersAhead: number | null, maxMs: number): number {
    const now = this.#clock.now();
    const intervalMs = this.#chooseInterval(waitersAhead, now - this.#note(claim, waitersAhead, now));
    // a little early: the core rounds up to milliseconds, and must meet the same one for all claims
    const untilNextMs = intervalMs - (now % intervalMs) - 0.5;
    return Math.min(untilNextMs < 1 ? untilNextMs + intervalMs : untilNextMs, maxMs);
  }

  /** The claim does not wait any more. */
  endWait(claim: Claim): void {
    this.#waits.delete(claim);
  }

  /** Returns since when the claim waits, or has its place near the front. */
  #note(claim: Claim, waitersAhead: number | null, now: number): number {
    const known = this.#waits.get(claim);
    const hasMoved = waitersAhead !== known?.waitersAhead && this.#nearMs(waitersAhead) < this.#intervals.shortMs;
    const since = known === undefined || hasMoved ? now : known.since;
    this.#waits.set(claim, { waitersAhead, since });
    return since;
  }

  #chooseInterval(waitersAhead: number | null, waitedMs: number): number {
    const { shortMs, firstMs, longMs } = this.#intervals;
    if (waitedMs >= firstMs) return longMs;
    let intervalMs = this.#nearMs(waitersAhead);
    while (intervalMs < shortMs && intervalMs * GROWTH <= waitedMs) intervalMs *= 2;
    return intervalMs;
  }

  /** The interval in a queue that moves. */
  #nearMs(waitersAhead: number | null): number {
    const { nextMs, shortMs } = this.#intervals;
    return waitersAhead === null ? shortMs : Math.min(nextMs * 2 ** waitersAhead, shortMs);
  }
}
