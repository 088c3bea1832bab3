import { expect, test } from "vitest";
import { computeInterval, computeRetryPause } from "../../../../../src/cli/commands/top/interval.ts";

test("reading takes at most one twentieth of the time", () => {
  const intervals = [0, 100, 101, 1_000].map((tookMs) => computeInterval(2_000, tookMs, null));
  expect(intervals).toEqual([2_000, 2_000, 2_020, 20_000]);
});

test("one slow list is an exception, two are not", () => {
  expect(computeInterval(2_000, 7_000, 50)).toBe(2_000);
  expect(computeInterval(2_000, 7_000, 1_000)).toBe(20_000);
});

test("an absent server is tried again at the usual time, a silent one later, but within five seconds", () => {
  expect(computeRetryPause(2_000, 5_000, true)).toBe(2_000);
  expect([1, 200, 5_000].map((tookMs) => computeRetryPause(2_000, tookMs, false))).toEqual([2_000, 3_800, 5_000]);
  expect(computeRetryPause(60_000, 5_000, false)).toBe(60_000);
});
