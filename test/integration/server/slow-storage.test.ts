// What happens to claims, sessions and other claims while a write to the disk hangs for long, or fails.

import { expect, test } from "vitest";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { MemoryStorage } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const DAY_MS = 86_400_000;

async function createHarness(remote = false): Promise<{ harness: ServerHarness; disk: MemoryStorage }> {
  const harness = new ServerHarness({ remote });
  await harness.start();
  return { harness, disk: harness.storage as MemoryStorage };
}

test("a claim that is released while it waits for the disk takes no entry, however long the disk takes", async () => {
  const { harness, disk } = await createHarness();
  const { driver } = await harness.connectClient();
  const claim = makeClaim("k", { ttlMs: 50_000 });
  const open = disk.blockWrites();
  const first = driver.claim(claim);
  await flushEventLoop();
  await driver.release([{ claim, hasUnansweredClaim: true }]);
  await harness.clock.advance(70_000);
  open();
  expect(await first).toMatchObject({ state: "none" });
  expect(harness.inspect().records.size).toBe(0);
});

test("a claim whose client disconnects while it waits for the disk takes no entry, even if a child keeps the session", async () => {
  const { harness, disk } = await createHarness();
  const client = await harness.connectClient();
  const open = disk.blockWrites();
  const pendingClaim = client.driver.claim(makeClaim("k", { ttlMs: 50_000 })).catch(() => null);
  await flushEventLoop();
  const [session] = [...harness.inspect().sessions.values()];
  session?.keepSessionConnections.add({} as never);
  client.isUnreachable = true;
  client.disconnect();
  await pendingClaim;
  open();
  await flushEventLoop();
  expect(harness.inspect().records.size).toBe(0);
});

test("a long claim that is revoked while it is journalled is not answered as held", async () => {
  const { harness, disk } = await createHarness();
  const [client, operator] = [await harness.connectClient(), await harness.connectClient()];
  const claim = makeClaim("k", { ttlMs: DAY_MS });
  const open = disk.blockWrites();
  const first = client.driver.claim(claim);
  await flushEventLoop();
  const token = [...harness.inspect().records.values()][0]?.token as number;
  const revocation = operator.driver.revoke?.([{ key: "k", token: BigInt(token), now: true }]);
  await flushEventLoop();
  open();
  expect(await first).toEqual({ state: "none", reason: "revoked" });
  expect(await revocation).toEqual([true]);
});

test("a claim whose lease ends while it is journalled is not answered as held", async () => {
  const { harness, disk } = await createHarness();
  const { driver } = await harness.connectClient();
  const open = disk.blockWrites();
  const first = driver.claim(makeClaim("k", { ttlMs: 61_000 }));
  await harness.clock.advance(70_000);
  open();
  expect(await first).toMatchObject({ state: "none" });
});

test("renewals of other claims do not fail with a long claim that the disk refuses", async () => {
  const { harness, disk } = await createHarness();
  const { driver } = await harness.connectClient();
  const [other] = [await harness.connectClient()];
  const [short, long] = [makeClaim("short"), makeClaim("long", { ttlMs: DAY_MS })];
  const before = makeClaim("long");
  expectHeld(await other.driver.claim(before));
  expectHeld(await driver.claim(short));
  expect(await driver.claim(long)).toMatchObject({ state: "waiting" });
  disk.isFull = true;
  await other.driver.release(toReleases(before));
  await flushEventLoop();
  expect(await driver.renew([short, long])).toMatchObject([{ state: "held" }, undefined]);
  disk.isFull = false;
  await harness.clock.advance(1_500);
  expect(await driver.renew([short, long])).toMatchObject([{ state: "held" }, { state: "held" }]);
});

test("renewals of other claims do not wait for the write of a long claim", async () => {
  const { harness, disk } = await createHarness();
  const { driver } = await harness.connectClient();
  const otherClient = await harness.connectClient();
  const [short, long] = [makeClaim("short"), makeClaim("long", { ttlMs: DAY_MS })];
  const before = makeClaim("long");
  expectHeld(await otherClient.driver.claim(before));
  expectHeld(await driver.claim(short));
  expect(await driver.claim(long)).toMatchObject({ state: "waiting" });
  const open = disk.blockWrites();
  await otherClient.driver.release(toReleases(before));
  await flushEventLoop();
  const renewal = driver.renew([short, long]);
  await harness.clock.advance(200);
  expect(await renewal).toMatchObject([{ state: "held" }, undefined]);
  open();
  await flushEventLoop();
});

test("while only the journal cannot be written, claims that need no journal are granted: at once, and after a wait", async () => {
  const { harness, disk } = await createHarness();
  const { driver } = await harness.connectClient();
  disk.isFull = "journal";
  await expect(driver.claim(makeClaim("long", { ttlMs: DAY_MS }))).rejects.toThrow("ENOSPC");
  for (let turn = 0; turn < 10; turn++) {
    await harness.clock.advance(10_000);
    const [now, later] = [makeClaim("k", { wait: false }), makeClaim("k")];
    expectHeld(await driver.claim(now));
    expect(await driver.claim(later)).toMatchObject({ state: "waiting" });
    await driver.release(toReleases(now));
    await flushEventLoop();
    expect((await driver.renew([later]))[0]).toMatchObject({ state: "held" });
    await driver.release(toReleases(later));
  }
});

test("a waiter is granted although the journal has failed for a minute without any claim call", async () => {
  const { harness, disk } = await createHarness();
  const [one, two] = [await harness.connectClient(), await harness.connectClient()];
  const [first, second] = [makeClaim("k", { ttlMs: "session" }), makeClaim("k", { ttlMs: "session" })];
  expectHeld(await one.driver.claim(first));
  expect(await two.driver.claim(second)).toMatchObject({ state: "waiting" });
  disk.isFull = "journal";
  await expect(one.driver.claim(makeClaim("long", { ttlMs: DAY_MS }))).rejects.toThrow("ENOSPC");
  await harness.clock.advance(90_000);
  await one.driver.release(toReleases(first));
  await harness.clock.advance(2_000);
  expect((await two.driver.renew([second]))[0]).toMatchObject({ state: "held" });
});

test("a claim whose detaching could not be written ends with its session, if that has ended meanwhile", async () => {
  const { harness, disk } = await createHarness();
  const client = await harness.connectClient();
  const claim = makeClaim("k");
  expectHeld(await client.driver.claim(claim));
  const open = disk.blockWrites();
  const detached = client.driver.detach?.([claim]).catch(() => null);
  await flushEventLoop();
  client.isUnreachable = true;
  client.disconnect();
  await detached;
  disk.isFull = true;
  open();
  await flushEventLoop();
  expect(harness.inspect().records.size).toBe(0);
});

test("a claim that is released while its detaching is written, and fails, leaves nothing in its session", async () => {
  const { harness, disk } = await createHarness();
  const [client, other] = [await harness.connectClient(), await harness.connectClient()];
  const claim = makeClaim("k");
  expectHeld(await client.driver.claim(claim));
  const open = disk.blockWrites();
  const detached = client.driver.detach?.([claim]).catch(() => "failed");
  await flushEventLoop();
  const pendingRelease = other.driver.release(toReleases(claim));
  pendingRelease.catch(() => undefined);
  await flushEventLoop();
  disk.isFull = true;
  open();
  expect(await detached).toBe("failed");
  await expect(pendingRelease).rejects.toThrow(/ENOSPC/);
  for (const { records } of harness.inspect().sessions.values()) expect(records.size).toBe(0);
});

test("detaching a claim whose lease has just ended leaves nothing in its session", async () => {
  const { harness } = await createHarness();
  const { driver } = await harness.connectClient();
  const claim = makeClaim("k", { ttlMs: 1_000 });
  expectHeld(await driver.claim(claim));
  const [session] = [...harness.inspect().sessions.values()];
  const { backend } = harness.inspect();
  harness.clock.jump(1_500);
  expect(backend.detach(session as never, [claim.id])).toEqual([false]);
  expect(session?.records.size).toBe(0);
});

test("a shutdown while the disk hangs leaves the table for the next start, whatever calls are waiting", async () => {
  const { harness, disk } = await createHarness();
  const [one, two] = [await harness.connectClient(), await harness.connectClient()];
  const [first, second] = [makeClaim("k"), makeClaim("k", { ttlMs: "session" })];
  expectHeld(await one.driver.claim(first));
  expect(await two.driver.claim(second)).toMatchObject({ state: "waiting" });
  const open = disk.blockWrites();
  const pendingClaim = two.driver.claim(makeClaim("other", { ttlMs: 50_000 })).catch(() => null);
  await flushEventLoop();
  harness.clock.wallOffsetMs += 3_600_000;
  await one.driver.release(toReleases(first));
  await flushEventLoop();
  const stopped = harness.stop();
  await flushEventLoop();
  open();
  await stopped;
  await pendingClaim;
  await flushEventLoop();
  expect(disk.state).toContain('"clean":{');
});

test("claims: no more may wait for the disk than may be placed; the waiting ones are placed, and a repeated one counts once", async () => {
  const harness = new ServerHarness({ remote: false, limits: { claims: 3 } });
  await harness.start();
  const { driver } = await harness.connectClient();
  const disk = harness.storage as MemoryStorage;
  const three = (ttlMs: number) => ["a", "b", "c"].map((key) => makeClaim(key, { ttlMs }));
  const open = disk.blockWrites();
  const claims = three(50_000);
  const waiting = claims.map((claim) => driver.claim(claim));
  await flushEventLoop();
  const repeatedClaim = driver.claim(claims[0] as (typeof claims)[0]);
  await expect(driver.claim(makeClaim("d", { ttlMs: 50_000 }))).rejects.toThrow("at most 3 claims on this server");
  expect(harness.inspect().records.size).toBe(0);
  open();
  for (const answer of await Promise.all([...waiting, repeatedClaim])) expectHeld(answer);
  await driver.release(toReleases(...claims));
  // none of them, and nothing of the refused one, is still counted
  const openAgain = disk.blockWrites();
  const otherClaims = three(55_000).map((claim) => driver.claim(claim));
  await flushEventLoop();
  openAgain();
  for (const answer of await Promise.all(otherClaims)) expectHeld(answer);
});
