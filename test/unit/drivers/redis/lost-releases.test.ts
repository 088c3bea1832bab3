import { beforeEach, expect, test } from "vitest";
import { toBucket } from "../../../../src/drivers/redis/key-names.ts";
import { LostReleases } from "../../../../src/drivers/redis/lost-releases.ts";
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

test("a claim that is unknown here is given back when it is granted, and when it is recalled for the second time", () => {
  lostReleases.onPush("one 17 16 30000 h 0aa key");
  lostReleases.onPush("two 17 16 30000 r 0aa key");
  lostReleases.onPush("three recalled 0aa key");
  expect(given).toEqual(["one 0aa key", "two 0aa key"]);
  lostReleases.onPush("three recalled 0aa key");
  expect(given.slice(2)).toEqual(["three 0aa key"]);
  lostReleases.onPush("four");
  expect(given).toHaveLength(3);
});

test("after a break the first recall counts, for a minute", async () => {
  lostReleases.onBreak(() => true);
  lostReleases.onPush("one recalled 0ak");
  expect(given).toEqual(["one 0ak"]);
  await clock.advance(60_001);
  lostReleases.onPush("two recalled 0ak");
  expect(given).toHaveLength(1);
});

test("of the claims that were recalled once a thousand are remembered", () => {
  for (let index = 0; index <= 1_000; index++) lostReleases.onPush(`${index} recalled 0ak`);
  lostReleases.onPush("0 recalled 0ak");
  lostReleases.onPush("1000 recalled 0ak");
  expect(given).toEqual(["1000 0ak"]);
});

test("after a break waiting claims recheck early, again and again, and new ones at once", async () => {
  expect(recheckMs(30_000)).toBe(30_000);
  lostReleases.onBreak(() => true);
  expect([recheckMs(30_000), recheckMs(50)]).toEqual([200, 50]);
  await clock.advance(5_000);
  expect([recheckMs(30_000), recheckMs(30_000, true)]).toEqual([5_000, 200]);
  await clock.advance(56_000);
  expect([recheckMs(30_000), recheckMs(30_000, true)]).toEqual([30_000, 30_000]);
  expect(lostReleases.toRecheckEarly({ state: "none" }, true)).toEqual({ state: "none" });
});

test("after a break the last releases of claims that are never recalled are sent again, if they are not older than a minute", async () => {
  const release = (id: string, recall: boolean): void => lostReleases.onReleased({ ...makeClaim("key"), id, recall });
  release("old", false);
  await clock.advance(60_001);
  release("recalled", true);
  release("claimed again", false);
  release("one", false);
  lostReleases.onBreak((id) => id !== "claimed again");
  expect(given).toEqual([`one ${toBucket("key")}key`]);
});
