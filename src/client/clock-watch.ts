/**
 * Notices time that our monotonic clock did not count: a suspended machine (it stands still on Linux), or a step of the
 * store's wall clock. Either way the answer is to ask the store, and to believe nothing doubtful until it has spoken.
 * A false alarm costs one round trip.
 */

import type { Clock } from "../clock.ts";

/** Two clocks may drift apart by this much between two looks before it counts. */
const TOLERANCE_MS = 250;

/**
 * The uptime costs some microseconds to read (on Linux Node reads a file for it), so that it is looked at once in this
 * time by our clock at most. What is left of the hole: a wall clock set back and a suspend as long as that, both within
 * this time of running after a look.
 */
const UPTIME_EACH_MS = 10;

/** Three clocks: elapsed time is the most that the monotonic clock, the wall clock and the uptime tell. */
export class SleepWatch {
  readonly #clock: Clock;
  #wallAhead: number;
  #uptimeAhead: number;
  #uptimeAt: number;

  constructor(clock: Clock) {
    const now = clock.now();
    this.#clock = clock;
    this.#wallAhead = clock.wall() - now;
    this.#uptimeAhead = clock.uptime() - now;
    this.#uptimeAt = now;
  }

  /** By how much the other clocks have run ahead of ours since the last look; 0 if within tolerance. Cheap. */
  sleptMs(now: number = this.#clock.now()): number {
    const ahead = this.#clock.wall() - now;
    const byMs = ahead - this.#wallAhead;
    const stands = byMs > -TOLERANCE_MS && byMs < TOLERANCE_MS;
    if (stands && now - this.#uptimeAt < UPTIME_EACH_MS) return 0;
    // both are looked at, so that a sleep that both tell of counts once
    const byUptime = this.#byUptime(now);
    if (stands) return byUptime;
    // looked at again, our clock last: who was stopped between two looks, and not asleep, has missed nothing
    const before = this.#wallAhead;
    this.#wallAhead = this.#clock.wall() - this.#clock.now();
    const slept = this.#wallAhead - before;
    return slept < TOLERANCE_MS ? byUptime : Math.max(slept, byUptime);
  }

  /** The uptime nobody can set. */
  #byUptime(now: number): number {
    this.#uptimeAt = now;
    const ahead = this.#clock.uptime() - this.#clock.now();
    const byMs = ahead - this.#uptimeAhead;
    if (byMs < TOLERANCE_MS) return 0;
    this.#uptimeAhead = ahead;
    return byMs;
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
