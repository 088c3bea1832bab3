import { expect, test } from "vitest";
import { exclusive, permitsOf, relation, shared, together } from "../../src/core/holds.ts";
import { ALL_PERMITS } from "../../src/core/line.ts";
import type { Hold } from "../../src/spi/driver.ts";

const one = ([hold]: readonly [Hold, ...Hold[]]): Hold => hold;
const write = one(exclusive("k"));
const read = one(shared("k"));
const permits = (count: number): Hold => one(permitsOf("k", count, 4));

test("a mutex takes every permit, a reader one of them, a semaphore some of its own", () => {
  expect(write).toEqual({ key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS });
  expect(read).toEqual({ key: "k", permits: 1, limit: ALL_PERMITS });
  expect(permits(3)).toEqual({ key: "k", permits: 3, limit: 4 });
});

test("several together are sorted by key, the same wish twice counts once", () => {
  const holds = together([exclusive("b"), shared("a"), exclusive("c"), exclusive("b"), exclusive("Z")]);
  expect(holds?.map(({ key }) => key)).toEqual(["Z", "a", "b", "c"]);
});

test("a key wanted in two ways is refused", () => {
  expect(together([exclusive("a"), shared("a")])).toBeNull();
  expect(together([permitsOf("a", 1, 3), permitsOf("a", 1, 4)])).toBeNull();
});

test.each([
  ["writing inside writing joins", [write], write, true, "joins"],
  ["reading inside writing joins", [write], read, true, "joins"],
  ["reading inside reading joins", [read], read, true, "joins"],
  ["writing inside reading would wait for itself", [read], write, true, "deadlock"],
  ["nothing joins when that is switched off", [write], write, false, "deadlock"],
  ["permits that fit are claimed beside", [permits(2)], permits(2), true, "beside"],
  ["permits that could only wait for their own flow are refused", [permits(2)], permits(3), true, "deadlock"],
  ["all permits held are counted", [permits(1), permits(2)], permits(2), true, "deadlock"],
  ["permits beside a mutex of the same flow would wait for it", [write], permits(1), true, "deadlock"],
  ["reading beside permits of the same flow would not be told apart", [permits(1)], read, true, "deadlock"],
] as const)("%s", (_, held, wanted, reentrant, expected) => {
  expect(relation(held, wanted, reentrant)).toBe(expected);
});
