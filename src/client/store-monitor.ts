/**
 * Whether the store answers, and whether its clock runs evenly: said once each time it changes. A refusal is an answer; and
 * a call that failed although a later one was answered by the same part of the store says nothing of the store.
 */

import { isFatalError } from "../errors.ts";
import type { Answer } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { StoreClock } from "../util/suspend-detector.ts";
import type { Events } from "./events.ts";

export class StoreMonitor {
  readonly #events: Events;
  readonly #clock: Clock;
  readonly #storeClock = new StoreClock();
  #downSince: number | null = null;
  /** When each part of the store (Driver.shardOf) answered last. */
  readonly #lastContactAt = new Map<string | undefined, number>();

  constructor(events: Events, clock: Clock) {
    this.#events = events;
    this.#clock = clock;
  }

  /** A call that was sent to this part of the store then has failed. */
  onFailure(error: unknown, sentAt: number, shard: string | undefined): void {
    if (this.#downSince !== null || isFatalError(error) || (this.#lastContactAt.get(shard) ?? sentAt) > sentAt) return;
    this.#downSince = this.#clock.now();
    this.#events.emit("storeDown", { error });
  }

  /** This part of the store has answered. */
  recordContact(now: number, shard: string | undefined): void {
    this.#lastContactAt.set(shard, now);
  }

  /** An answer came. Has the store's clock stepped since the last one? */
  onAnswer(answer: Answer, sentAt: number, now: number): boolean {
    if (this.#downSince !== null) {
      const downMs = now - this.#downSince;
      this.#downSince = null;
      this.#events.emit("storeUp", { downMs });
    }
    if (answer.state === "none" || answer.storeMs === undefined) return false;
    const stepMs = this.#storeClock.measureStepMs(answer.storeMs, sentAt, now);
    if (stepMs !== 0) this.#events.emit("clockStep", { byMs: stepMs, source: "store" });
    return stepMs !== 0;
  }
}
