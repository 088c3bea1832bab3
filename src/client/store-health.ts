/** Whether the store answers, and whether its clock runs evenly: said once each time it changes. */

import type { Clock } from "../clock.ts";
import type { Answer } from "../spi/driver.ts";
import { StoreClockWatch } from "./clock-watch.ts";
import type { Events } from "./events.ts";

export class StoreHealth {
  readonly #events: Events;
  readonly #clock: Clock;
  readonly #storeClock = new StoreClockWatch();
  #downSince: number | null = null;

  constructor(events: Events, clock: Clock) {
    this.#events = events;
    this.#clock = clock;
  }

  failed(error: unknown): void {
    if (this.#downSince !== null) return;
    this.#downSince = this.#clock.now();
    this.#events.emit("storeDown", { error });
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
