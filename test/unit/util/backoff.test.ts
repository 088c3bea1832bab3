import fc from "fast-check";
import { expect, test } from "vitest";
import { backoffMs } from "../../../src/util/backoff.ts";

test("the bound of a delay doubles with every failure, up to the maximum", () => {
  expect([1, 2, 3, 8].map((failures) => backoffMs(failures, 1, 2_000))).toEqual([20, 40, 80, 2_000]);
});

test("a delay is a share of its bound, at least a millisecond, whatever the number of failures", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 10_000 }), fc.double({ min: 0, max: 1, noNaN: true }), (failures, random) => {
      const delay = backoffMs(failures, random, 500);
      expect(delay).toBeGreaterThanOrEqual(1);
      expect(delay).toBeLessThanOrEqual(500);
    }),
  );
  expect(backoffMs(3, 0.5, 2_000)).toBe(40);
  expect(backoffMs(1, 0, 2_000)).toBe(1);
});
