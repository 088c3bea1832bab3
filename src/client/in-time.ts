/** A bound for calls outside a claim's life: a driver may leave one unanswered for ever. */

import type { Engine } from "./engine.ts";
import { attempt } from "./releases.ts";

/** What the call gives, or a rejection if the store has not answered within so many milliseconds of the engine's clock. */
export function inTime<T>(engine: Engine, withinMs: number, call: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const due = (): void => reject(new Error("the store did not answer in time"));
    const late = { rides: false, dueAt: 0, heapIndex: -1, due };
    engine.set(late, engine.clock.now() + withinMs);
    attempt(call)
      .then(resolve, reject)
      .finally(() => engine.unset(late));
  });
}
