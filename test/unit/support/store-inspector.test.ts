import { expect, test } from "vitest";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import type { StoredEntry } from "../../support/stores/store-inspector.ts";
import { findViolations } from "../../support/stores/store-inspector.ts";

const storedEntry = (
  claim: string,
  state: StoredEntry["state"],
  permits: number,
  limit: number,
  key = "k",
): StoredEntry => ({
  claim,
  key,
  permits,
  limit,
  state,
});
const inspect = (...entries: StoredEntry[]): string[] => findViolations({ entries, withoutExpiry: [], orphans: [] });

test("an allowed state is not a violation", () => {
  expect(inspect()).toEqual([]);
  expect(inspect(storedEntry("a", "held", ALL_PERMITS, ALL_PERMITS), storedEntry("b", "waiting", 1, 1))).toEqual([]);
  expect(inspect(storedEntry("a", "held", 1, ALL_PERMITS), storedEntry("b", "held", 1, ALL_PERMITS))).toEqual([]);
  expect(inspect(storedEntry("a", "held", 2, 3), storedEntry("b", "held", 1, 3))).toEqual([]);
  // the one with the smaller limit may have come first
  expect(inspect(storedEntry("b", "held", 2, 4), storedEntry("a", "held", 1, 1))).toEqual([]);
  expect(inspect(storedEntry("a", "held", ALL_PERMITS, ALL_PERMITS), storedEntry("a", "waiting", 1, 1, "l"))).toEqual(
    [],
  );
});

test.each([
  [
    "two exclusive holders",
    [storedEntry("a", "held", ALL_PERMITS, ALL_PERMITS), storedEntry("b", "held", ALL_PERMITS, ALL_PERMITS)],
  ],
  [
    "a reader beside a writer",
    [storedEntry("a", "held", 1, ALL_PERMITS), storedEntry("b", "held", ALL_PERMITS, ALL_PERMITS)],
  ],
  ["an overfull semaphore", [storedEntry("a", "held", 2, 3), storedEntry("b", "held", 2, 3)]],
  ["a holder in a queue", [storedEntry("a", "held", 1, 3), storedEntry("a", "waiting", 1, 3)]],
  ["a claim that holds twice", [storedEntry("a", "held", 1, 3), storedEntry("a", "held", 1, 3)]],
])("%s is found", (_, entries) => {
  expect(inspect(...entries)).toHaveLength(1);
});

test("a claim without an end and a claim without an owner are reported", () => {
  expect(findViolations({ entries: [], withoutExpiry: ["x"], orphans: ["y"] })).toEqual([
    "x has no end",
    "y belongs to no claim",
  ]);
});
