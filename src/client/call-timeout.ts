/** A bound for calls outside a claim's life: a driver may leave one unanswered for ever. */

import type { Engine } from "./engine.ts";
import { callDriver } from "./release-queue.ts";
import { withTimeout } from "./timeout.ts";

/** What the call gives, or a rejection if the store has not answered within so many milliseconds of the engine's clock. */
export function callWithTimeout<T>(engine: Engine, timeoutMs: number, call: () => Promise<T>): Promise<T> {
  return withTimeout(engine, timeoutMs, callDriver(call), () =>
    Promise.reject(new Error("the store did not answer in time")),
  );
}
