/**
 * Detects whether the store answers and whether its clock steps, and emits an event at each change. A refusal counts as
 * an answer. A failed call does not count if the same shard of the store has answered after the call was sent.
 */

import { isFatalError } from "../errors.ts";
import type { Answer } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { CLOCK_TOLERANCE_MS } from "../util/suspend-detector.ts";
import type { Events } from "./events.ts";

export class StoreMonitor {
  readonly #events: Events;
  readonly #clock: Clock;
  readonly #storeClock = new StoreClock();
  #downSince: number | null = null;
  /** When each shard of the store (Driver.shardOf) answered last. */
  readonly #lastContactAt = new Map<string | undefined, number>();

  constructor(events: Events, clock: Clock) {
    this.#events = events;
    this.#clock = clock;
  }

  /** A call that was sent to this shard at `sentAt` has failed. */
  onFailure(error: unknown, sentAt: number, shard: string | undefined): void {
    if (this.#downSince !== null || isFatalError(error) || (this.#lastContactAt.get(shard) ?? sentAt) > sentAt) return;
    this.#downSince = this.#clock.now();
    this.#events.emit("storeDown", { error });
  }

  /** This shard has answered. */
  recordContact(now: number, shard: string | undefined): void {
    this.#lastContactAt.set(shard, now);
  }

  /** Handles an answer; returns whether the store's clock has stepped since the last one. */
  onAnswer(answer: Answer, sentAt: number, now: number): boolean {
    if (this.#downSince !== null) {
      const downMs = now - this.#downSince;
      this.#downSince = null;
      this.#events.emit("storeUp", { downMs });
    }
    if (answer.state === "none" || answer.storeTimeMs === undefined) return false;
    const stepMs = this.#storeClock.measureStepMs(answer.storeTimeMs, sentAt, now);
    if (stepMs !== 0) this.#events.emit("clockStep", { byMs: stepMs, source: "store" });
    return stepMs !== 0;
  }
}

/** Compares the store's wall clock, if its answers have it, with the local monotonic clock. */
class StoreClock {
  /** The bounds of the store's clock minus the local clock, by the send and receive times of the last call. */
  #minOffset = Number.NEGATIVE_INFINITY;
  #maxOffset = Number.POSITIVE_INFINITY;

  /** Takes a sample; returns the step since the last one in milliseconds, 0 if there was none. */
  measureStepMs(storeTimeMs: number, sentAt: number, now: number): number {
    const minOffset = storeTimeMs - now;
    const maxOffset = storeTimeMs - sentAt;
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
