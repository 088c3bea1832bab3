/**
 * The two times of the lock table. Calls of which one read has brought many are made in one go: one reading of the clocks
 * does for all of them. Leases then count from the beginning of the batch, which no client has sent its call after.
 */

import type { Clock } from "../clock.ts";

/** What the table's verbs are given. */
export interface Time {
  /** Monotonic milliseconds, for leases. */
  readonly now: number;
  /** The wall clock in microseconds, for tokens only. */
  readonly micros: number;
}

export class Times {
  readonly #clock: Clock;
  #batch: Time | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Time stands still until end(), which must come before anything is waited for. */
  begin(): void {
    this.#batch = this.#read();
  }

  end(): void {
    this.#batch = null;
  }

  get(): Time {
    return this.#batch ?? this.#read();
  }

  #read(): Time {
    return { now: this.#clock.now(), micros: Math.floor(this.#clock.wall() * 1_000) };
  }
}
