import type { Engine } from "./engine.ts";
import { timed } from "./timed.ts";

/** What the work gives, or what `late` gives if that takes more milliseconds of the engine's clock. */
export function within<T>(engine: Engine, ms: number, work: Promise<T>, late: () => T | Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = timed(() => resolve(late()));
    engine.set(end, engine.clock.now() + ms);
    work.finally(() => engine.unset(end)).then(resolve, reject);
  });
}
