/** What an engine works with. */

import type { Clock } from "../clock.ts";
import type { Driver } from "../spi/driver.ts";
import type { Events } from "./events.ts";

export interface EngineOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  /** From 0 to 1. */
  readonly random: () => number;
  readonly events: Events;
}
