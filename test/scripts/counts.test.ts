import { expect, test } from "vitest";
import { closingLine, parseClosingLine, sum } from "../../scripts/test/counts.ts";
import { globs, PARTS, TOTAL_SECONDS } from "../../scripts/test/parts.ts";

test("the last closing line counts", () => {
  const output = "1 passed, 0 failed, 0 skipped\nmore\n2 passed, 1 failed, 3 skipped\n";
  expect(parseClosingLine(output)).toEqual({ passed: 2, failed: 1, skipped: 3 });
  expect(parseClosingLine("12 passed, 1 failed")).toBeUndefined();
  expect(
    closingLine(
      sum([
        { passed: 1, failed: 2, skipped: 3 },
        { passed: 4, failed: 5, skipped: 6 },
      ]),
    ),
  ).toBe("5 passed, 7 failed, 9 skipped");
});

test("the parts fit into the whole", () => {
  expect(PARTS.reduce((total, part) => total + part.seconds, 0)).toBeLessThanOrEqual(TOTAL_SECONDS);
  expect(new Set(PARTS.map((part) => part.name)).size).toBe(PARTS.length);
});

test("a folder and a beginning of file names become globs", () => {
  expect(globs(["test/core/", "test/drivers/memory."])).toEqual([
    "test/core/**/*.test.ts",
    "test/drivers/memory.*test.ts",
  ]);
});
