/**
 * The two times of the lock table. Calls of which one read has brought many are made in one go: one reading of the clocks
 * does for all of them. Leases then count from the beginning of the batch, which no client has sent its call after.
 */

import type { Clock } from "../../util/clock.ts";

/** What the table's verbs are given. */
export interface Timestamps {
  /** Monotonic milliseconds, for leases. */
  readonly now: number;
  /** The wall clock in microseconds, for tokens only. */
  readonly micros: number;
}

export class BatchClock {
  readonly #clock: Clock;
  #batch: Timestamps | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Time stands still until endBatch(), which must come before anything is waited for. */
  beginBatch(): void {
    this.#batch = this.#readClocks();
  }

  endBatch(): void {
    this.#batch = null;
  }

  read(): Timestamps {
    return this.#batch ?? this.#readClocks();
  }

  #readClocks(): Timestamps {
    return { now: this.#clock.now(), micros: Math.floor(this.#clock.wall() * 1_000) };
  }
}
