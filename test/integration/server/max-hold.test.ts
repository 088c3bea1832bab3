// A rule can bound how long a lock is held. The holder is then asked to release it, and the next waiter is granted after the release.

import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { LockLostError } from "../../../src/errors.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const MINUTE_MS = 60_000;
const ana = testAccount("ana", "a/", ["acquire", "inspect"], { maxHoldMs: MINUTE_MS });
const ben = testAccount("ben");

async function createHarness(): Promise<ServerHarness> {
  const harness = new ServerHarness({ access: createTestAccess(ana, ben) });
  await harness.start();
  return harness;
}

test("a claim held for longer than allowed answers none with the reason, its holder is notified, and it keeps its entry until it is released", async () => {
  const harness = await createHarness();
  const [holder, next] = [
    await harness.connectClient(true, ana.credential),
    await harness.connectClient(true, ben.credential),
  ];
  const [claimA, claimB] = [makeClaim("a/1"), makeClaim("a/1", { ttlMs: MINUTE_MS })];
  expectHeld(await holder.driver.claim(claimA));
  await next.driver.claim(claimB);
  const renewClaim = async (): Promise<void> => {
    await harness.clock.advance(20_000);
    await holder.driver.renew([claimA]);
    await next.driver.renew([claimB]);
  };
  await renewClaim();
  await renewClaim();
  await harness.clock.advance(19_999);
  expect(await holder.driver.renew([claimA])).toMatchObject([{ state: "held" }]);
  expect(holder.pushes).toEqual([]);
  await harness.clock.advance(1);
  const maxHoldAnswer = { state: "none", reason: "maxHold" };
  expect(holder.pushes).toEqual([{ id: claimA.id, answer: maxHoldAnswer }]);
  expect(await holder.driver.renew([claimA])).toEqual([maxHoldAnswer]);
  expect(await holder.driver.claim(claimA)).toEqual([maxHoldAnswer][0]);
  // its holder may still be working: no other client is granted the lock
  await harness.clock.advance(20_000);
  expect(await next.driver.renew([claimB])).toMatchObject([{ state: "waiting" }]);
  await holder.driver.release(toReleases(claimA));
  await flushEventLoop();
  expect(next.pushes).toMatchObject([{ id: claimB.id, answer: { state: "held" } }]);
});

test("a holder that never releases keeps its lock until its lease ends, and no longer", async () => {
  const harness = await createHarness();
  const [holder, next] = [
    await harness.connectClient(true, ana.credential),
    await harness.connectClient(true, ben.credential),
  ];
  const [claimA, claimB] = [makeClaim("a/1"), makeClaim("a/1", { ttlMs: MINUTE_MS })];
  expectHeld(await holder.driver.claim(claimA));
  await next.driver.claim(claimB);
  for (let index = 0; index < 3; index++) {
    await harness.clock.advance(19_000);
    await holder.driver.renew([claimA]);
    await next.driver.renew([claimB]);
  }
  // its last renewal was at 57 s, so its lease ends at 87 s
  await harness.clock.advance(29_990);
  expect(next.pushes).toEqual([]);
  await harness.clock.advance(20);
  expect(next.pushes).toMatchObject([{ id: claimB.id, answer: { state: "held" } }]);
});

test("the time counts from the grant, not from the arrival, and only where a rule sets a limit", async () => {
  const harness = await createHarness();
  const [mine, other] = [
    await harness.connectClient(true, ana.credential),
    await harness.connectClient(true, ben.credential),
  ];
  const [first, waitingClaim] = [
    makeClaim("a/1", { ttlMs: 10 * MINUTE_MS }),
    makeClaim("a/1", { ttlMs: 10 * MINUTE_MS }),
  ];
  expectHeld(await other.driver.claim(first));
  await mine.driver.claim(waitingClaim);
  await harness.clock.advance(2 * MINUTE_MS);
  // ben's rules set no limit
  expect(await other.driver.renew([first])).toMatchObject([{ state: "held" }]);
  await other.driver.release(toReleases(first));
  await harness.clock.advance(MINUTE_MS - 1);
  expect(await mine.driver.renew([waitingClaim])).toMatchObject([{ state: "held" }]);
  await harness.clock.advance(1);
  expect(await mine.driver.renew([waitingClaim])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("detaching does not reset the time, and a restart continues with the remaining time", async () => {
  const harness = await createHarness();
  const ownClient = await harness.connectClient(true, ana.credential);
  const claim = makeClaim("a/1", { ttlMs: 10 * MINUTE_MS });
  expectHeld(await ownClient.driver.claim(claim));
  await harness.clock.advance(MINUTE_MS / 2);
  expect(await ownClient.driver.detach?.([claim])).toEqual([true]);
  await harness.stop();
  await harness.start();
  const secondClient = await harness.connectClient(true, ana.credential);
  await harness.clock.advance(MINUTE_MS / 2 - 1_000);
  expect(await secondClient.driver.renew([claim])).toMatchObject([{ state: "held" }]);
  await harness.clock.advance(1_000);
  expect(await secondClient.driver.renew([claim])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("after a crash the time counts from the reclaim", async () => {
  const harness = await createHarness();
  const ownClient = await harness.connectClient(true, ana.credential);
  const claim = makeClaim("a/1");
  expectHeld(await ownClient.driver.claim(claim));
  await harness.clock.advance(9_000);
  await ownClient.driver.renew([claim]);
  harness.crash();
  await harness.start();
  await harness.clock.advance(3_000);
  for (let index = 0; index < 3; index++) {
    expect(await ownClient.driver.renew([claim])).toMatchObject([{ state: "held" }]);
    await harness.clock.advance(19_000);
  }
  expect(await ownClient.driver.renew([claim])).toMatchObject([{ state: "held" }]);
  await harness.clock.advance(3_000);
  expect(await ownClient.driver.renew([claim])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("the holder's signal is aborted with the reason maxHold, long before its next renewal", async () => {
  const shortAccount = testAccount("short", "", ["acquire"], { maxHoldMs: 200 });
  const it = await startServer({ access: createTestAccess(shortAccount) });
  const locks = createLocks(lockServer({ path: it.path, credential: shortAccount.credential }));
  onCleanup(() => locks.close());
  const lock = await locks.acquire("k", { ttl: "30s" });
  await until(() => lock.signal.aborted, { within: 5_000, what: "the signal" });
  expect((lock.signal.reason as LockLostError).reason).toBe("maxHold");
  expect(await lock.release()).toBe(false);
  await until(() => it.stats().claims === 0, { within: 2_000, what: "the claim to be given back" });
});

test("a holder that asked for it is recalled when half of the time has passed, and its answers say so from then on", async () => {
  const harness = await createHarness();
  const holder = await harness.connectClient(true, ana.credential);
  const [asking, silent] = [makeClaim("a/1", { recall: true }), makeClaim("a/2")];
  for (const claim of [asking, silent]) expectHeld(await holder.driver.claim(claim));
  const renewAll = async (): Promise<boolean[]> => {
    const answers = await holder.driver.renew([asking, silent]);
    return answers.map((answer) => expectHeld(answer).recalled === true);
  };
  await harness.clock.advance(MINUTE_MS / 2 - 1);
  expect(await renewAll()).toEqual([false, false]);
  expect(holder.recalls).toEqual([]);
  await harness.clock.advance(1);
  expect(holder.recalls).toEqual([asking.id]);
  expect(await renewAll()).toEqual([true, false]);
  await harness.clock.advance(MINUTE_MS / 2 - 1);
  expect(await renewAll()).toEqual([true, false]);
  await harness.clock.advance(1);
  expect(await holder.driver.renew([asking])).toEqual([{ state: "none", reason: "maxHold" }]);
});

test("a grant of limited time names no successors: the holders after it would have what it has left", async () => {
  const harness = await createHarness();
  for (const [account, successors] of [
    [ana, undefined],
    [ben, 1],
  ] as const) {
    const { driver, pushes } = await harness.connectClient(true, account.credential);
    const claims = [0, 1, 2].map(() => makeClaim("a/1", { successors: true })) as [Claim, Claim, Claim];
    for (const claim of claims) await driver.claim(claim);
    await driver.release(toReleases(claims[0]));
    await flushEventLoop();
    const [push] = pushes;
    expect(push).toMatchObject({ id: claims[1].id, answer: { state: "held" } });
    expect(push?.answer?.state === "held" ? push.answer.successors?.length : null).toBe(successors);
    await driver.release(toReleases(claims[2], claims[1]));
  }
});
