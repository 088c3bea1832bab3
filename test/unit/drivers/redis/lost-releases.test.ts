import { beforeEach, expect, test } from "vitest";
import { toBucket } from "../../../../src/drivers/redis/key-names.ts";
import { LostReleases } from "../../../../src/drivers/redis/lost-releases.ts";
import type { DecodedPush } from "../../../../src/drivers/reply-codec.ts";
import { decodePush } from "../../../../src/drivers/reply-codec.ts";
import type { Answer } from "../../../../src/spi/driver.ts";
import { makeClaim } from "../../../support/claims.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

let clock: FakeClock;
let given: string[];
let lostReleases: LostReleases;
beforeEach(() => {
  clock = new FakeClock();
  given = [];
  lostReleases = new LostReleases(clock, (id, bucketAndKey) => given.push(`${id} ${bucketAndKey}`));
});

const recheckMs = (ms: number, isNew = false): unknown => {
  const waiting: Answer = { state: "waiting", remainingMs: 30_000, recheckMs: ms };
  return (lostReleases.toRecheckEarly(waiting, isNew) as { readonly recheckMs: number }).recheckMs;
};

/** The store confirms the release of a claim; by default of one that is recalled, whose release is not sent again after a break. */
function release(id: string, recall = true): void {
  lostReleases.onRelease(id);
  lostReleases.onReleased({ ...makeClaim("key"), id, recall });
}

const receive = (message: string): boolean => lostReleases.onPush(decodePush(message) as DecodedPush);

test("a released claim is given back when it is granted, and when it is recalled for the second time", () => {
  for (const id of ["one", "two", "three", "four"]) release(id);
  receive("one 17 16 30000 h 0aa key");
  receive("two 17 16 30000 r 0aa key");
  receive("three recalled 0aa key");
  expect(given).toEqual(["one 0aa key", "two 0aa key"]);
  receive("three recalled 0aa key");
  expect(given.slice(2)).toEqual(["three 0aa key"]);
  expect(receive("four")).toBe(true);
  expect(given).toHaveLength(3);
});

test("a push about a claim that is not released, or was claimed again, is left to others", () => {
  release("one");
  lostReleases.onClaim("one");
  lostReleases.onRelease("two");
  for (const id of ["one", "two", "three"]) expect(receive(`${id} 17 16 30000 h 0ak`)).toBe(false);
  expect(given).toEqual([]);
});

test("after a break the first recall counts, for a minute", async () => {
  for (const id of ["one", "two"]) release(id);
  lostReleases.onBreak();
  receive("one recalled 0ak");
  expect(given).toEqual(["one 0ak"]);
  await clock.advance(60_001);
  receive("two recalled 0ak");
  expect(given).toHaveLength(1);
});

test("of the claims that were recalled once a thousand are remembered", () => {
  for (let index = 0; index <= 1_000; index++) {
    release(`${index}`);
    receive(`${index} recalled 0ak`);
  }
  receive("0 recalled 0ak");
  receive("1000 recalled 0ak");
  expect(given).toEqual(["1000 0ak"]);
});

test("after a break waiting claims recheck early, again and again, and new ones at once", async () => {
  expect(recheckMs(30_000)).toBe(30_000);
  lostReleases.onBreak();
  expect([recheckMs(30_000), recheckMs(50)]).toEqual([200, 50]);
  await clock.advance(5_000);
  expect([recheckMs(30_000), recheckMs(30_000, true)]).toEqual([5_000, 200]);
  await clock.advance(56_000);
  expect([recheckMs(30_000), recheckMs(30_000, true)]).toEqual([30_000, 30_000]);
  expect(lostReleases.toRecheckEarly({ state: "none" }, true)).toEqual({ state: "none" });
});

test("after a break the last releases of claims that are never recalled are sent again, if they are not older than a minute", async () => {
  release("old", false);
  await clock.advance(60_001);
  release("recalled", true);
  release("claimed again", false);
  release("one", false);
  lostReleases.onClaim("claimed again");
  lostReleases.onBreak();
  expect(given).toEqual([`one ${toBucket("key")}key`]);
});
