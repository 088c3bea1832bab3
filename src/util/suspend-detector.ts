/**
 * Notices time that our monotonic clock did not count: a suspended machine (it stands still on Linux), or a step of the
 * store's wall clock. Either way the answer is to ask the store, and to believe nothing doubtful until it has spoken.
 * A false alarm costs one round trip.
 */

import type { Clock } from "./clock.ts";

/** Two clocks may drift apart by this much between two looks before it counts. */
const CLOCK_TOLERANCE_MS = 250;

/**
 * The uptime costs some microseconds to read (on Linux Node reads a file for it), so that it is looked at once in this
 * time by our clock at most. What is left of the hole: a wall clock set back and a suspend as long as that, both within
 * this time of running after a look.
 */
const UPTIME_INTERVAL_MS = 10;

/** Three clocks: elapsed time is the most that the monotonic clock, the wall clock and the uptime tell. */
export class SuspendDetector {
  readonly #clock: Clock;
  #wallAhead: number;
  #uptimeAhead: number;
  #uptimeReadAt: number;

  constructor(clock: Clock) {
    const now = clock.now();
    this.#clock = clock;
    this.#wallAhead = clock.wall() - now;
    this.#uptimeAhead = clock.uptime() - now;
    this.#uptimeReadAt = now;
  }

  /** By how much the other clocks have run ahead of ours since the last look; 0 if within tolerance. Cheap. */
  suspendedMs(now: number = this.#clock.now()): number {
    const ahead = this.#clock.wall() - now;
    const stepMs = ahead - this.#wallAhead;
    const isSteady = stepMs > -CLOCK_TOLERANCE_MS && stepMs < CLOCK_TOLERANCE_MS;
    if (isSteady && now - this.#uptimeReadAt < UPTIME_INTERVAL_MS) return 0;
    // both are looked at, so that a sleep that both tell of counts once
    const uptimeStepMs = this.#uptimeStepMs(now);
    if (isSteady) return uptimeStepMs;
    // looked at again, our clock last: who was stopped between two looks, and not asleep, has missed nothing
    const previousAhead = this.#wallAhead;
    this.#wallAhead = this.#clock.wall() - this.#clock.now();
    const suspendedMs = this.#wallAhead - previousAhead;
    return suspendedMs < CLOCK_TOLERANCE_MS ? uptimeStepMs : Math.max(suspendedMs, uptimeStepMs);
  }

  /** The uptime nobody can set. */
  #uptimeStepMs(now: number): number {
    this.#uptimeReadAt = now;
    const ahead = this.#clock.uptime() - this.#clock.now();
    const stepMs = ahead - this.#uptimeAhead;
    if (stepMs < CLOCK_TOLERANCE_MS) return 0;
    this.#uptimeAhead = ahead;
    return stepMs;
  }
}

/** Compares the store's wall clock, where answers carry it, with our monotonic one. */
export class StoreClock {
  /** The store's clock minus ours lies between these, as far as calls' travel times tell. */
  #minOffset = Number.NEGATIVE_INFINITY;
  #maxOffset = Number.POSITIVE_INFINITY;

  /** Takes a sample; gives the step since the last one in milliseconds, 0 if there was none. */
  measureStepMs(storeMs: number, sentAt: number, now: number): number {
    const minOffset = storeMs - now;
    const maxOffset = storeMs - sentAt;
    const stepMs =
      minOffset > this.#maxOffset
        ? minOffset - this.#maxOffset
        : maxOffset < this.#minOffset
          ? maxOffset - this.#minOffset
          : 0;
    this.#minOffset = minOffset;
    this.#maxOffset = maxOffset;
    return Math.abs(stepMs) > CLOCK_TOLERANCE_MS ? stepMs : 0;
  }
}
