/**
 * Whether the store answers, and whether its clock runs evenly: said once each time it changes. A refusal is an answer; and
 * a call that failed although a later one was answered by the same part of the store says nothing of the store.
 */

import type { Clock } from "../clock.ts";
import { isFatal } from "../errors.ts";
import type { Answer } from "../spi/driver.ts";
import { StoreClockWatch } from "./clock-watch.ts";
import type { Events } from "./events.ts";

export class StoreHealth {
  readonly #events: Events;
  readonly #clock: Clock;
  readonly #storeClock = new StoreClockWatch();
  #downSince: number | null = null;
  /** When each part of the store (Driver.shardOf) answered last. */
  readonly #heardAt = new Map<string | undefined, number>();

  constructor(events: Events, clock: Clock) {
    this.#events = events;
    this.#clock = clock;
  }

  /** A call that was sent to this part of the store then has failed. */
  failed(error: unknown, sentAt: number, shard: string | undefined): void {
    if (this.#downSince !== null || isFatal(error) || (this.#heardAt.get(shard) ?? sentAt) > sentAt) return;
    this.#downSince = this.#clock.now();
    this.#events.emit("storeDown", { error });
  }

  /** This part of the store has answered. */
  heard(now: number, shard: string | undefined): void {
    this.#heardAt.set(shard, now);
  }

  /** An answer came. Has the store's clock stepped since the last one? */
  answered(answer: Answer, sentAt: number, now: number): boolean {
    if (this.#downSince !== null) {
      const downMs = now - this.#downSince;
      this.#downSince = null;
      this.#events.emit("storeUp", { downMs });
    }
    if (answer.state === "none" || answer.storeMs === undefined) return false;
    const byMs = this.#storeClock.stepMs(answer.storeMs, sentAt, now);
    if (byMs !== 0) this.#events.emit("clockStep", { byMs, whose: "store" });
    return byMs !== 0;
  }
}
