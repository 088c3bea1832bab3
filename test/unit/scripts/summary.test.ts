import { expect, test } from "vitest";
import { findFailureLines, formatFailure } from "../../../scripts/test/failures.ts";
import { SUITES, toGlobs } from "../../../scripts/test/suites.ts";
import { formatSummary, parseSummary, sumCounts } from "../../../scripts/test/summary.ts";

test("the last closing line counts", () => {
  const output = "1 passed, 0 failed, 0 skipped\nmore\n2 passed, 1 failed, 3 skipped\n";
  expect(parseSummary(output)).toEqual({ passed: 2, failed: 1, skipped: 3 });
  expect(parseSummary("12 passed, 1 failed")).toBeUndefined();
  expect(
    formatSummary(
      sumCounts([
        { passed: 1, failed: 2, skipped: 3 },
        { passed: 4, failed: 5, skipped: 6 },
      ]),
    ),
  ).toBe("5 passed, 7 failed, 9 skipped");
});

test("failed tests are extracted from a suite's output, with message and location", () => {
  const stack = "Error: one\n    at /tmp/x/src/y.ts:1:2\n    at /tmp/x/test/z.test.ts:3:4\n";
  const lines = formatFailure("test/z.test.ts > it holds", [{ message: "\u001b[31mone\u001b[39m\ntwo", stack }]);
  expect(lines).toEqual([
    "FAILED test/z.test.ts > it holds",
    "FAILED     one",
    "FAILED     two",
    "FAILED         at /tmp/x/test/z.test.ts:3:4",
  ]);
  expect(findFailureLines(["something", ...lines, "0 passed, 1 failed, 0 skipped"].join("\n"))).toEqual(lines);
});

test("each suite has a name of its own", () => {
  expect(new Set(SUITES.map((suite) => suite.name)).size).toBe(SUITES.length);
});

test("a directory and a prefix of file names become globs", () => {
  expect(toGlobs(["test/core/", "test/conformance/memory."])).toEqual([
    "test/core/**/*.test.ts",
    "test/conformance/memory.*test.ts",
  ]);
});
