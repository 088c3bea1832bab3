/** Installing takes longer than a test may: it is done before the tests begin, in the main process of Vitest. */

/** @throws Error in a process that runs tests */
export function assertOutsideOfTests(what: string): void {
  if (process.env.VITEST_WORKER_ID === undefined) return;
  throw new Error(
    `${what} must be installed before the tests begin: name it in "requires" of the suite in scripts/test/suites.ts`,
  );
}
