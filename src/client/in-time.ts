/** A bound for calls outside a claim's life: a driver may leave one unanswered for ever. */

import type { Engine } from "./engine.ts";
import { attempt } from "./releases.ts";
import { within } from "./within.ts";

/** What the call gives, or a rejection if the store has not answered within so many milliseconds of the engine's clock. */
export function inTime<T>(engine: Engine, withinMs: number, call: () => Promise<T>): Promise<T> {
  return within(engine, withinMs, attempt(call), () => Promise.reject(new Error("the store did not answer in time")));
}
