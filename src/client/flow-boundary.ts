/** Boundaries inside an async flow: what the flow holds from before one does not count behind it. */

import { AsyncLocalStorage } from "node:async_hooks";

/** Equal in all copies of the package: one copy's function must be a boundary for the locks of the others. */
const STORAGE = Symbol.for("holdfast.flowBoundaries");

/** Created when first entered: on Node 20 and 22 it makes every await of the process slower. */
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<object> };

export function runBehindBoundary<T>(fn: () => T): T {
  shared[STORAGE] ??= new AsyncLocalStorage<object>();
  return shared[STORAGE].run({}, fn);
}

/** The innermost boundary of this flow, which differs from every other one. */
export function currentBoundary(): object | undefined {
  return shared[STORAGE]?.getStore();
}
