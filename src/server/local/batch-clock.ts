/**
 * The two clocks of the lock table. All calls of one batch share one reading of the clocks. Their leases count from the
 * beginning of the batch, and every client sent its call before that.
 */

import type { Timestamps } from "../../lock-table/table.ts";
import type { Clock } from "../../util/clock.ts";

export class BatchClock {
  readonly #clock: Clock;
  #batch: Timestamps | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Freezes the time until endBatch(), which must be called before anything is awaited. */
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
