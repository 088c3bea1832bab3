/**
 * Notices time that our monotonic clock did not count: a suspended machine (it stands still on Linux), or a step of the
 * store's wall clock. Either way the answer is to ask the store, and to believe nothing doubtful until it has spoken.
 * A false alarm costs one round trip.
 */

import type { Clock } from "../clock.ts";

/** Two clocks may drift apart by this much between two looks before it counts. */
const TOLERANCE_MS = 250;

/** Three clocks: elapsed time is the most that the monotonic clock, the wall clock and the uptime tell. */
export class SleepWatch {
  readonly #clock: Clock;
  #wallAhead: number;
  #uptimeAhead: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#wallAhead = clock.wall() - clock.now();
    this.#uptimeAhead = clock.uptime() - clock.now();
  }

  /** By how much the wall clock has run ahead of ours since the last look; 0 if within tolerance. Cheap. */
  sleptMs(now: number = this.#clock.now()): number {
    const ahead = this.#clock.wall() - now;
    const byMs = ahead - this.#wallAhead;
    if (byMs > -TOLERANCE_MS && byMs < TOLERANCE_MS) return 0;
    this.#wallAhead = ahead;
    return Math.max(byMs, 0);
  }

  /** The same by the uptime too, which no one can set; dearer, for the engine's timer. */
  sleptLongMs(): number {
    const byWall = this.sleptMs();
    const ahead = this.#clock.uptime() - this.#clock.now();
    const byUptime = ahead - this.#uptimeAhead;
    if (byUptime < TOLERANCE_MS) return byWall;
    this.#uptimeAhead = ahead;
    return Math.max(byWall, byUptime);
  }
}

/** Compares the store's wall clock, where answers carry it, with our monotonic one. */
export class StoreClockWatch {
  /** The store's clock minus ours lies between these, as far as calls' travel times tell. */
  #least = Number.NEGATIVE_INFINITY;
  #most = Number.POSITIVE_INFINITY;

  /** Takes a sample; gives the step since the last one in milliseconds, 0 if there was none. */
  stepMs(storeMs: number, sentAt: number, now: number): number {
    const least = storeMs - now;
    const most = storeMs - sentAt;
    const step = least > this.#most ? least - this.#most : most < this.#least ? most - this.#least : 0;
    this.#least = least;
    this.#most = most;
    return Math.abs(step) > TOLERANCE_MS ? step : 0;
  }
}
