/** A timeout for calls that no claim's machine supervises: a driver may leave a call unanswered for ever. */

import type { Engine } from "./engine.ts";
import { callDriver } from "./release-queue.ts";
import { withTimeout } from "./timeout.ts";

/** Settles like the call, or rejects if it takes longer than timeoutMs by the engine's clock. */
export function callWithTimeout<T>(engine: Engine, timeoutMs: number, call: () => Promise<T>): Promise<T> {
  return withTimeout(engine, timeoutMs, callDriver(call), () =>
    Promise.reject(new Error("the store did not answer in time")),
  );
}
