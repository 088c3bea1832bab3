/** Code of the user that runs around the functions under the locks of one client. */

import type { LockEvent } from "./events.ts";
import type { Lock, LockHandle } from "./lock.ts";

/**
 * Runs around each function that using(), wrap() or @locked() calls, in its async context. Must call `run`, which calls the
 * function and releases the lock, once, and return its result. `event` describes the request that got the lock.
 */
export type Interceptor = <T>(lock: Lock, event: LockEvent, run: () => Promise<T>) => Promise<T>;

export class Interceptors {
  readonly #entries = new Set<{ readonly interceptor: Interceptor }>();

  /** @throws TypeError if the interceptor is not a function */
  add(interceptor: Interceptor): Disposable {
    if (typeof interceptor !== "function") throw new TypeError("interceptor must be a function");
    const entry = { interceptor };
    this.#entries.add(entry);
    return { [Symbol.dispose]: () => void this.#entries.delete(entry) };
  }

  /** Calls `run` inside the interceptors; the one that was added first is the outermost. */
  run<T>(lock: LockHandle, run: () => Promise<T>): Promise<T> {
    if (this.#entries.size === 0) return run();
    let outermost = run;
    for (const { interceptor } of [...this.#entries].reverse()) {
      const inner = outermost;
      outermost = () => interceptor(lock, lock.describe(), inner);
    }
    return outermost();
  }
}
