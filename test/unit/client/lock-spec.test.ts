import { expect, test } from "vitest";
import {
  checkSupported,
  combineTargets,
  exclusive,
  mergeSpecs,
  mutexTarget,
  readTarget,
  semaphorePermits,
  semaphoreTarget,
  shared,
} from "../../../src/client/lock-spec.ts";
import type { LockSpec, Traits } from "../../../src/spi/driver.ts";
import { ALL_PERMITS, isExclusive, MAX_LOCKS } from "../../../src/spi/driver.ts";

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

test("a target has the full keys for the store and the keys without the prefix for users", () => {
  expect(mutexTarget("", "k")).toEqual({ locks: exclusive("k"), keys: ["k"] });
  expect(readTarget("app:", "k")).toEqual({ locks: shared("app:k"), keys: ["k"] });
  expect(semaphoreTarget("app:", "k", undefined, 4)).toEqual({ locks: semaphorePermits("app:k", 1, 4), keys: ["k"] });
});

test.each([
  [
    "a key that is too long with its prefix",
    () => mutexTarget("p".repeat(500), "k".repeat(100)),
    /key with its prefix/,
  ],
  ["a limit that is no number", () => semaphoreTarget("", "k", 1, "4"), /limit must be a whole number from 1 to /],
  ["a limit with a fraction", () => semaphoreTarget("", "k", 1, 1.5), /limit must be a whole number/],
  ["no permits", () => semaphoreTarget("", "k", 0, 4), /permits must be a whole number from 1 to 4, not 0/],
  ["more permits than the limit", () => semaphoreTarget("", "k", 5, 4), /permits must be a whole number from 1 to 4/],
] as const)("%s is refused", (_, makeTarget, message) => {
  expect(makeTarget).toThrow(message);
});

test("several targets are combined into one, in key order", () => {
  const target = combineTargets("app:", [mutexTarget("app:", "b"), readTarget("app:", "a")]);
  expect(target).toEqual({ locks: [...shared("app:a"), ...exclusive("app:b")], keys: ["a", "b"] });
});

test("no target, one key in two modes, and too many keys are refused", () => {
  expect(() => combineTargets("", [])).toThrow("all() needs at least one key");
  expect(() => combineTargets("", [mutexTarget("", "a"), readTarget("", "a")])).toThrow(/two different modes/);
  const keys = Array.from({ length: MAX_LOCKS + 1 }, (_, index) => mutexTarget("", `k${index}`));
  expect(() => combineTargets("", keys)).toThrow(`all() takes at most ${MAX_LOCKS} keys, not ${MAX_LOCKS + 1}`);
});

test.each([
  ["any", "mutex", null],
  ["any", "reader", null],
  ["any", "semaphore", null],
  ["shared", "mutex", null],
  ["shared", "reader", null],
  ["shared", "semaphore", "store has no semaphores"],
  ["one", "mutex", null],
  ["one", "reader", "store has no shared locks"],
  ["one", "semaphore", "store has no semaphores"],
] as const)("on a store with permits %j a %s is checked before anything is sent", (permits, kind, message) => {
  const targets = {
    mutex: mutexTarget("", "k"),
    reader: readTarget("", "k"),
    semaphore: semaphoreTarget("", "k", 1, 4),
  };
  const check = (): void => checkSupported(targets[kind], { permits } as Traits, "store");
  if (message === null) expect(check).not.toThrow();
  else expect(check).toThrow(message);
});

test("a spec is exclusive if it takes every permit of the key, not of a limit of its own", () => {
  expect([...exclusive("a"), ...shared("a"), ...semaphorePermits("a", 4, 4)].map(isExclusive)).toEqual([
    true,
    false,
    false,
  ]);
});
