import { describe, expect, test } from "vitest";
import type { Count } from "../../../bench/compare/counts.ts";
import { countFaults } from "../../../bench/compare/counts.ts";
import { medianInterval } from "../../../bench/harness/stats.ts";

const numbersUpTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

describe("the interval of a median", () => {
  test.each([
    // from the table of the sign test
    [6, 1, 6],
    [9, 2, 8],
    [15, 4, 12],
    [25, 8, 18],
  ])("of %i figures goes from number %i to number %i", (count, low, high) => {
    const interval = medianInterval(numbersUpTo(count).reverse());
    expect(interval).toEqual({ median: (count + 1) / 2, low, high, isSure: true });
  });

  test("of fewer than six figures does not exist at 95 %", () => {
    expect(medianInterval(numbersUpTo(5))).toEqual({ median: 3, low: 1, high: 5, isSure: false });
  });
});

describe("the counts of two builds", () => {
  const runs = (...counts: readonly number[]): Count[] => counts.map((sent) => ({ sent }));
  const EXACT = { exact: true, sampled: [] };
  const TIMED = { exact: false, sampled: [] };

  test("of exact kind differ by a single frame of a single run", () => {
    expect(countFaults({ pairs: 1, old: runs(400, 400, 400), new: runs(400, 400, 400) }, EXACT)).toEqual([]);
    expect(countFaults({ pairs: 1, old: runs(400, 400, 400), new: runs(400, 401, 400) }, EXACT)).toHaveLength(1);
  });

  test("of timed kind are equal if they overlap or are within 2 %", () => {
    expect(countFaults({ pairs: 1, old: runs(100, 120, 130), new: runs(130, 140, 150) }, TIMED)).toEqual([]);
    expect(countFaults({ pairs: 1, old: runs(1_000, 1_000), new: runs(1_019, 1_019) }, TIMED)).toEqual([]);
    expect(countFaults({ pairs: 1, old: runs(1_000, 1_000), new: runs(1_021, 1_021) }, TIMED)).toHaveLength(1);
  });

  test("differ by a command that only one of them sends", () => {
    const old = [{ evalsha: 2 }, { evalsha: 2 }];
    const now = [
      { evalsha: 2, get: 1 },
      { evalsha: 2, get: 1 },
    ];
    expect(countFaults({ pairs: 1, old, new: now }, EXACT)).toEqual(["get: 0 a pair before, 1 now"]);
    expect(countFaults({ pairs: 1, old, new: now }, TIMED)).toHaveLength(1);
  });
});
