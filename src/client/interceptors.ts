/** Code of the user that runs around the functions under the locks of one client. */

import type { LockEvent } from "./events.ts";
import type { Lock, LockHandle } from "./lock.ts";

/**
 * Runs around each function that using(), wrap() or @locked() calls, in its async context. Must call `run`, which calls
 * the function and releases the lock, once, and return its result. `event` describes the request that got the lock. If
 * it settles without having called `run`, the lock is released, and the function does not run.
 */
export type Interceptor = <T>(lock: Lock, event: LockEvent, run: () => Promise<T>) => Promise<T>;

export class Interceptors {
  readonly #entries = new Set<{ readonly interceptor: Interceptor }>();

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  /** @throws TypeError if the interceptor is not a function */
  add(interceptor: Interceptor): Disposable {
    if (typeof interceptor !== "function") throw new TypeError("interceptor must be a function");
    const entry = { interceptor };
    this.#entries.add(entry);
    return { [Symbol.dispose]: () => void this.#entries.delete(entry) };
  }

  /**
   * Calls `run` inside the interceptors; the one that was added first is the outermost. If no interceptor calls it, the
   * lock is released here: its caller has no handle.
   */
  run<T>(lock: LockHandle, run: () => Promise<T>): Promise<T> {
    return this.isEmpty ? run() : this.#runInside(lock, run);
  }

  async #runInside<T>(lock: LockHandle, run: () => Promise<T>): Promise<T> {
    let isCalled = false;
    let outermost = (): Promise<T> => {
      isCalled = true;
      return run();
    };
    for (const { interceptor } of [...this.#entries].reverse()) {
      const inner = outermost;
      outermost = () => interceptor(lock, lock.describe(), inner);
    }
    try {
      return await outermost();
    } finally {
      if (!isCalled) await lock.release();
    }
  }
}
