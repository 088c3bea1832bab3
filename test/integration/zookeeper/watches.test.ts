// The cost of waiting at the servers: one watch for each node with waiters, and no more requests than needed.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import type { Claim, ClaimId } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, readSpecs, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const TIMEOUT_MS = 20_000;
const fixture = zookeeperFixture({}, { root: "/watches", sessionMs: 20_000 });
const { openDriver } = fixture;

const countWatches = async (): Promise<number> =>
  Number(/Total watches:(\d+)/.exec(await fixture.server.runCommand("wchs"))?.[1] ?? Number.NaN);

const expectNoWatchLeft = (): Promise<unknown> =>
  until(async () => (await countWatches()) === 0, { within: TIMEOUT_MS, what: "all watches to be gone" });

test.each([true, false])(
  "a claim that finds the key free when it sets its watch leaves no watch behind (fair: %s)",
  async (fair) => {
    const driver = await openDriver({ fair });
    const key = `gone-${fair}`;
    for (let round = 0; round < 20; round++) {
      const [first, second] = [makeSessionClaim(key), makeSessionClaim(key)];
      await driver.claim(first);
      // the list is sent before the release, and its watch after it
      const pendingClaim = driver.claim(second);
      const pendingRelease = driver.release(toReleases(first));
      await Promise.all([pendingClaim, pendingRelease]);
      await until(async () => (await driver.renew([second]))[0]?.state === "held", {
        within: TIMEOUT_MS,
        what: "its turn",
      });
      await driver.release(toReleases(second));
    }
    await expectNoWatchLeft();
  },
);

test("all readers behind a writer share one watch and one list, and each is notified", async () => {
  const pushedIds = new Set<ClaimId | null>();
  const driver = await openDriver({}, (id) => pushedIds.add(id));
  const writer = makeSessionClaim("shared");
  await driver.claim(writer);
  const readers = Array.from({ length: 50 }, () => makeSessionClaim("shared", readSpecs("shared")));
  const received = async (): Promise<number> =>
    Number(/Received: (\d+)/.exec(await fixture.server.runCommand("srvr"))?.[1]);
  const before = await received();
  for (const reader of readers) expect((await driver.claim(reader)).state).toBe("waiting");
  // a create and a list each; the rest is the watches on the writer: its own, and theirs; and this question
  expect((await received()) - before - 2 * readers.length).toBeLessThan(10);
  pushedIds.clear();
  await driver.release(toReleases(writer));
  await until(() => readers.every(({ id }) => pushedIds.has(id)), { within: TIMEOUT_MS, what: "each to be told" });
  for (const answer of await driver.renew(readers)) expect(answer?.state).toBe("held");
  await driver.release(toReleases(...readers));
  await expectNoWatchLeft();
});

test("all waiters for permits share one watch and one list: a release costs the same however many wait", async () => {
  const pushedIds = new Set<ClaimId | null>();
  const driver = await openDriver({}, (id) => pushedIds.add(id));
  const hold = { locks: [{ key: "permits", permits: 1, limit: 2 }] } as const;
  const holders = [makeSessionClaim("permits", hold), makeSessionClaim("permits", hold)];
  for (const holder of holders) expect((await driver.claim(holder)).state).toBe("held");
  const waiters = Array.from({ length: 60 }, () => makeSessionClaim("permits", hold));
  for (const waiter of waiters) expect((await driver.claim(waiter)).state).toBe("waiting");
  const received = async (): Promise<number> =>
    Number(/Received: (\d+)/.exec(await fixture.server.runCommand("srvr"))?.[1]);
  await driver.renew(waiters);
  const before = await received();
  for (const [turn, waiter] of waiters.slice(0, 10).entries()) {
    await driver.release(toReleases([...holders, ...waiters][turn] as Claim));
    await until(() => pushedIds.has(waiter.id), { within: TIMEOUT_MS, what: "the next to be told" });
    pushedIds.clear();
    const [first, ...others] = await driver.renew(waiters.slice(turn));
    expect(first?.state).toBe("held");
    expect(new Set(others.map((answer) => answer?.state)).has("none")).toBe(false);
  }
  // a delete, two lists and the watch on the next holder's own node each; pings, and the questions themselves
  expect((await received()) - before).toBeLessThan(100);
  await driver.release(toReleases(...holders, ...waiters));
  await expectNoWatchLeft();
});

test("a cancelled waiter is forgotten, however long the claim in front of it stays", async () => {
  const driver = await openDriver();
  const holder = makeSessionClaim("left");
  await driver.claim(holder);
  const seenWeakRefs: WeakRef<Claim>[] = [];
  for (let turn = 0; turn < 20; turn++) {
    const waits = makeSessionClaim("left", readSpecs("left"));
    expect((await driver.claim(waits)).state).toBe("waiting");
    expect(await driver.release(toReleases(waits))).toEqual([true]);
    seenWeakRefs.push(new WeakRef(waits));
  }
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const isForgotten = async (): Promise<boolean> => {
    collect();
    // the last turn may still be in a register
    return seenWeakRefs.filter((weakRef) => weakRef.deref() !== undefined).length <= 1;
  };
  await until(isForgotten, { within: TIMEOUT_MS, what: "19 of 20 to be forgotten" });
  await driver.release(toReleases(holder));
  await expectNoWatchLeft();
});
