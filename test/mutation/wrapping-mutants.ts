/** Faults in how users' functions run under a lock: a result executes twice, or outside of the lock. */

import type { Mutant } from "./mutants.ts";

const tests = "test/unit/client/thenables.test.ts";

export const WRAPPING_MUTANTS: readonly Mutant[] = [
  {
    name: "a query that executes outside of the async context that its function ran in",
    file: "src/client/reentrancy.ts",
    find: "this.#storage.run(frame, () => adoptThenable(fn()))",
    replace: "this.#storage.run(frame, fn as () => T)",
    tests,
  },
  {
    name: "a query of a wrapped function that executes where currentLock() fails",
    file: "src/wrapping/locked-call.ts",
    find: "runWithCurrentLock(lock, () => adoptThenable(call()))",
    replace: "runWithCurrentLock(lock, call)",
    tests,
  },
  {
    name: "a query that executes twice",
    file: "src/util/thenable.ts",
    find: "    then.call(result, resolve, reject);\n",
    replace: "    then.call(result, resolve, reject);\n    result.then(resolve, reject);\n",
    tests,
  },
  {
    name: "a lock whose handle is garbage, and nobody is told",
    file: "src/client/local-hold.ts",
    find: "    this.newHandle?.watch();\n",
    replace: "",
    tests: "test/unit/client/forgotten-locks.test.ts",
  },
  {
    name: "a hold that keeps the handle that it watches",
    file: "src/client/local-hold.ts",
    find: "    this.newHandle = null;\n",
    replace: "",
    tests: "test/unit/client/forgotten-locks.test.ts",
  },
  {
    name: "a warning of a lock that was released",
    file: "src/client/lock.ts",
    find: "    this.#state = RELEASING;\n    if (this.#isWatched) unwatchHandle(this);\n",
    replace: "    this.#state = RELEASING;\n",
    tests: "test/unit/client/forgotten-locks.test.ts",
  },
  {
    name: "a request inside withoutCurrentLock() joins the lock of its flow",
    file: "src/client/reentrancy.ts",
    find: "return frame !== null && frame.boundary === currentBoundary() ? frame : null;",
    replace: "return frame;",
    tests: "test/unit/wrapping/wrap.test.ts",
  },
];
