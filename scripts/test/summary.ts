// The closing line of a test run: "12 passed, 0 failed, 1 skipped".

export type TestCounts = { readonly passed: number; readonly failed: number; readonly skipped: number };

export const NO_TESTS: TestCounts = { passed: 0, failed: 0, skipped: 0 };

export function formatSummary({ passed, failed, skipped }: TestCounts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** The last closing line in what a program printed. */
export function parseSummary(output: string): TestCounts | undefined {
  const found = [...output.matchAll(/^(\d+) passed, (\d+) failed, (\d+) skipped$/gm)].at(-1);
  if (found === undefined) return undefined;
  return { passed: Number(found[1]), failed: Number(found[2]), skipped: Number(found[3]) };
}

export function sumCounts(all: readonly TestCounts[]): TestCounts {
  return all.reduce(
    (a, b) => ({ passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped }),
    NO_TESTS,
  );
}
