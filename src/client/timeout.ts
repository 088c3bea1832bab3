import type { Engine } from "./engine.ts";
import { createTask } from "./scheduled-task.ts";

/** Settles like `work`, or with `onTimeout()` if it takes longer than timeoutMs by the engine's clock. */
export function withTimeout<T>(
  engine: Engine,
  timeoutMs: number,
  work: Promise<T>,
  onTimeout: () => T | Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const task = createTask(() => resolve(onTimeout()));
    engine.schedule(task, engine.clock.now() + timeoutMs);
    work.finally(() => engine.cancel(task)).then(resolve, reject);
  });
}
