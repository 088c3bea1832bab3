import { expect, test } from "vitest";
import { ALL_PERMITS } from "../../src/core/line.ts";
import type { StoredPlace } from "./inspect.ts";
import { violationsOf } from "./inspect.ts";

const place = (claim: string, state: StoredPlace["state"], permits: number, limit: number, key = "k"): StoredPlace => ({
  claim,
  key,
  permits,
  limit,
  state,
});
const judge = (...places: StoredPlace[]): string[] => violationsOf({ places, endless: [], orphans: [] });

test("what is allowed is not a violation", () => {
  expect(judge()).toEqual([]);
  expect(judge(place("a", "held", ALL_PERMITS, ALL_PERMITS), place("b", "waiting", 1, 1))).toEqual([]);
  expect(judge(place("a", "held", 1, ALL_PERMITS), place("b", "held", 1, ALL_PERMITS))).toEqual([]);
  expect(judge(place("a", "held", 2, 3), place("b", "held", 1, 3))).toEqual([]);
  // the one with the smaller limit may have come first
  expect(judge(place("b", "held", 2, 4), place("a", "held", 1, 1))).toEqual([]);
  expect(judge(place("a", "held", ALL_PERMITS, ALL_PERMITS), place("a", "waiting", 1, 1, "l"))).toEqual([]);
});

test.each([
  [
    "two exclusive holders",
    [place("a", "held", ALL_PERMITS, ALL_PERMITS), place("b", "held", ALL_PERMITS, ALL_PERMITS)],
  ],
  ["a reader beside a writer", [place("a", "held", 1, ALL_PERMITS), place("b", "held", ALL_PERMITS, ALL_PERMITS)]],
  ["an overfull semaphore", [place("a", "held", 2, 3), place("b", "held", 2, 3)]],
  ["a holder in a queue", [place("a", "held", 1, 3), place("a", "waiting", 1, 3)]],
  ["a claim that holds twice", [place("a", "held", 1, 3), place("a", "held", 1, 3)]],
])("%s is found", (_, places) => {
  expect(judge(...places)).toHaveLength(1);
});

test("what has no end and what belongs to nobody is named", () => {
  expect(violationsOf({ places: [], endless: ["x"], orphans: ["y"] })).toEqual([
    "x has no end",
    "y belongs to no claim",
  ]);
});
