/** The dependencies of the engine. */

import type { Driver } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import type { Events } from "./events.ts";

export interface EngineOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  /** Returns a number from 0 to 1. */
  readonly random: () => number;
  readonly events: Events;
}
