/** A bound for work that may never settle. */

import { systemClock } from "../util/clock.ts";
import { withTimeout } from "../util/timeout.ts";

/** The result, or undefined if it takes longer than `ms`. */
export function resultWithin<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
  return withTimeout<T | undefined>(systemClock, ms, work, () => undefined);
}
