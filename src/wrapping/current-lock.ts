/** The lock of the wrapped function or method that is running. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Lock } from "../client/lock.ts";

/** Equal in all copies of the package: holdfast/testing has its own, whose locks run functions that import this one. */
const STORAGE = Symbol.for("holdfast.currentLock");

/** Created when something wrapped first runs: on Node 20 and 22 it makes every await of the process slower. */
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<Lock> };

export function runWithCurrentLock<T>(lock: Lock, fn: () => T): T {
  shared[STORAGE] ??= new AsyncLocalStorage<Lock>();
  return shared[STORAGE].run(lock, fn);
}

/**
 * The lock that protects the running function of wrap(), method of @locked() or request of holdfast/middleware: its signal, its
 * token. Of nested ones it is the innermost. After the function has settled, what it left running still finds the lock, which is then released.
 * @throws TypeError outside of such a function
 */
export function currentLock(): Lock {
  const lock = shared[STORAGE]?.getStore();
  if (lock === undefined)
    throw new TypeError(
      "currentLock() works only inside a function of wrap(), a method of @locked() or a request of holdfast/middleware",
    );
  return lock;
}
