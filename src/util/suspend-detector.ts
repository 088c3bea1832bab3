/**
 * Detects time that the local monotonic clock did not count: a suspension of this machine (on Linux the clock stops). The
 * client then asks the store, and affected claims are unconfirmed until it answers. A false alarm costs one round trip.
 */

import type { Clock } from "./clock.ts";

/** How far two clocks may drift apart between two readings, or two answers of a store. */
export const CLOCK_TOLERANCE_MS = 250;

/**
 * Reading the uptime takes some microseconds (on Linux Node reads a file), so it is read at most once in this time by the
 * monotonic clock. One case remains undetected: the wall clock is set back and the machine is suspended for the same time,
 * both within this running time after a reading.
 */
const UPTIME_INTERVAL_MS = 10;

/** Compares the uptime, which unlike the wall clock cannot be set, with the monotonic clock. */
class UptimeComparison {
  readonly #clock: Clock;
  #uptimeAhead: number;
  #comparedAt: number;

  constructor(clock: Clock, now: number) {
    this.#clock = clock;
    this.#uptimeAhead = clock.uptime() - now;
    this.#comparedAt = now;
  }

  isDue(now: number): boolean {
    return now - this.#comparedAt >= UPTIME_INTERVAL_MS;
  }

  /** How far the uptime has run ahead since the last call; 0 if within tolerance. */
  measureStepMs(now: number): number {
    this.#comparedAt = now;
    const ahead = this.#clock.uptime() - this.#clock.now();
    const stepMs = ahead - this.#uptimeAhead;
    if (stepMs < CLOCK_TOLERANCE_MS) return 0;
    this.#uptimeAhead = ahead;
    return stepMs;
  }
}

/** Returns a reader of the monotonic time plus the suspensions since now, by the uptime alone. */
export function createSuspendAwareTime(clock: Clock): () => number {
  const uptime = new UptimeComparison(clock, clock.now());
  let suspendedMs = 0;
  return () => {
    const now = clock.now();
    if (uptime.isDue(now)) suspendedMs += uptime.measureStepMs(now);
    return now + suspendedMs;
  };
}

/** Compares three clocks: the elapsed time is the maximum of the monotonic clock, the wall clock and the uptime. */
export class SuspendDetector {
  readonly #clock: Clock;
  readonly #uptime: UptimeComparison;
  #wallAhead: number;

  constructor(clock: Clock) {
    const now = clock.now();
    this.#clock = clock;
    this.#uptime = new UptimeComparison(clock, now);
    this.#wallAhead = clock.wall() - now;
  }

  /** How far the other clocks have run ahead of the monotonic clock since the last call; 0 if within tolerance. Cheap. */
  suspendedMs(now: number = this.#clock.now()): number {
    const ahead = this.#clock.wall() - now;
    const stepMs = ahead - this.#wallAhead;
    const isSteady = stepMs > -CLOCK_TOLERANCE_MS && stepMs < CLOCK_TOLERANCE_MS;
    if (isSteady && !this.#uptime.isDue(now)) return 0;
    // read both clocks, so that a suspension that both show counts once
    const uptimeStepMs = this.#uptime.measureStepMs(now);
    if (isSteady) return uptimeStepMs;
    // read again, the monotonic clock last: a process that was only stopped between the readings has missed no time
    const previousAhead = this.#wallAhead;
    this.#wallAhead = this.#clock.wall() - this.#clock.now();
    const suspendedMs = this.#wallAhead - previousAhead;
    return suspendedMs < CLOCK_TOLERANCE_MS ? uptimeStepMs : Math.max(suspendedMs, uptimeStepMs);
  }
}
