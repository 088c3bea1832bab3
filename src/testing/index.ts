/** holdfast/testing: locks for the tests of code that locks. */

export type { OtherHolder } from "./controlled-store.ts";
export { createTestLocks, type TestLocks, type TestLocksOptions } from "./test-locks.ts";
