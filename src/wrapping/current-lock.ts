/** The lock of the wrapped function or method that is running, and how a function leaves the locks of its async flow. */

import { AsyncLocalStorage } from "node:async_hooks";
import { runBehindBoundary } from "../client/flow-boundary.ts";
import type { Lock } from "../client/lock.ts";
import { adoptThenable } from "../util/thenable.ts";
import { functionRule, requireValid } from "../util/validate.ts";

/** Equal in all copies of the package: holdfast/testing has its own, whose locks run functions that import this one. */
const STORAGE = Symbol.for("holdfast.currentLock");

/** Created when something wrapped first runs: on Node 20 and 22 it makes every await of the process slower. */
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<Lock | undefined> };

export function runWithCurrentLock<T>(lock: Lock, fn: () => T): T {
  shared[STORAGE] ??= new AsyncLocalStorage<Lock | undefined>();
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

/**
 * Runs fn outside of all locks of its async flow: nested requests do not join them, holds() is false, and currentLock() throws. For work
 * on behalf of others, such as the batch of a DataLoader, that begins in the async context of one caller. Other async contexts, such as
 * those of tracing, stay.
 * @throws what fn throws; TypeError if fn is no function
 */
export function withoutCurrentLock<T>(fn: () => PromiseLike<T>): Promise<T>;
export function withoutCurrentLock<T>(fn: () => T): T;
export function withoutCurrentLock<T>(fn: () => T | PromiseLike<T>): T | Promise<T> {
  requireValid(fn, "fn", functionRule);
  // a thenable that fn returns executes there, too
  const run = (): T | Promise<T> => runBehindBoundary(() => adoptThenable(fn()));
  return shared[STORAGE] === undefined ? run() : shared[STORAGE].run(undefined, run);
}
