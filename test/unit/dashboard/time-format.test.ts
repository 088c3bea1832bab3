import { describe, expect, test } from "vitest";
import {
  formatAge,
  formatAmount,
  formatClock,
  formatExact,
  formatMoment,
  formatRate,
} from "../../../src/dashboard/model/time-format.ts";

describe("a duration that moves", () => {
  test.each([
    [-5, "0 s"],
    [999, "0 s"],
    [12_900, "12 s"],
    [59_999, "59 s"],
    [60_000, "1 m"],
    [192_000, "3 m 12 s"],
    [3_599_999, "59 m 59 s"],
    [7_500_000, "2 h 5 m"],
    [86_400_000, "1 d"],
    [273_600_000, "3 d 4 h"],
  ])("%d ms is %s", (ms, text) => {
    expect(formatAge(ms)).toBe(text);
  });
});

describe("a duration that is exact", () => {
  test.each([
    [0.25, "0.3 ms"],
    [40, "40 ms"],
    [1_500, "1.5 s"],
    [120_000, "2 m"],
    [5_400_000, "1.5 h"],
    [172_800_000, "2 d"],
  ])("%d ms is %s", (ms, text) => {
    expect(formatExact(ms)).toBe(text);
  });
});

test("a moment has its date if that is not today", () => {
  const at = new Date(2026, 10, 30, 9, 5, 7).getTime();
  expect(formatClock(at)).toBe("09:05:07");
  expect(formatMoment(at, at + 60_000)).toBe("09:05:07");
  expect(formatMoment(at, at + 86_400_000)).toBe("2026-11-30 09:05:07");
});

test("amounts and rates", () => {
  expect(formatAmount(1, "key")).toBe("1 key");
  expect(formatAmount(2_000, "key")).toBe("2,000 keys");
  expect([0, 0.44, 9.96, 1_234.5].map(formatRate)).toEqual(["0", "0.4", "10", "1,235"]);
});
