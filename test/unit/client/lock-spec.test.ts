import { expect, test } from "vitest";
import { exclusive, mergeSpecs, resolveNesting, semaphorePermits, shared } from "../../../src/client/lock-spec.ts";
import type { LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

const singleSpec = ([hold]: readonly [LockSpec, ...LockSpec[]]): LockSpec => hold;
const writeSpec = singleSpec(exclusive("k"));
const readSpec = singleSpec(shared("k"));
const permitSpecs = (count: number): LockSpec => singleSpec(semaphorePermits("k", count, 4));

test("a mutex takes every permit, a reader one of them, a semaphore the given number", () => {
  expect(writeSpec).toEqual({ key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS });
  expect(readSpec).toEqual({ key: "k", permits: 1, limit: ALL_PERMITS });
  expect(permitSpecs(3)).toEqual({ key: "k", permits: 3, limit: 4 });
});

test("several specs together are sorted by key, and a repeated one counts once", () => {
  const lockSpecs = mergeSpecs([exclusive("b"), shared("a"), exclusive("c"), exclusive("b"), exclusive("Z")]);
  expect(lockSpecs?.map(({ key }) => key)).toEqual(["Z", "a", "b", "c"]);
});

test("one key in two modes is refused", () => {
  expect(mergeSpecs([exclusive("a"), shared("a")])).toBeNull();
  expect(mergeSpecs([semaphorePermits("a", 1, 3), semaphorePermits("a", 1, 4)])).toBeNull();
});

test.each([
  ["writing inside writing joins", [writeSpec], writeSpec, true, "join"],
  ["reading inside writing joins", [writeSpec], readSpec, true, "join"],
  ["reading inside reading joins", [readSpec], readSpec, true, "join"],
  ["writing inside reading would wait for itself", [readSpec], writeSpec, true, "deadlock"],
  ["nothing joins when that is switched off", [writeSpec], writeSpec, false, "deadlock"],
  ["permits that fit are claimed beside", [permitSpecs(2)], permitSpecs(2), true, "separate"],
  ["permits that could only wait for their own flow are refused", [permitSpecs(2)], permitSpecs(3), true, "deadlock"],
  ["all permits held are counted", [permitSpecs(1), permitSpecs(2)], permitSpecs(2), true, "deadlock"],
  ["permits beside a mutex of the same flow would wait for it", [writeSpec], permitSpecs(1), true, "deadlock"],
  ["reading beside permits of the same flow would not be told apart", [permitSpecs(1)], readSpec, true, "deadlock"],
] as const)("%s", (_, held, wanted, reentrant, expected) => {
  expect(resolveNesting(held, wanted, reentrant)).toBe(expected);
});
