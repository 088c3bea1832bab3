// What survives a clean shutdown, what the journal contains, and what a failing disk prevents.

import { expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { MemoryStorage } from "../../support/server-harness.ts";
import { claimState, ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const DAY_MS = 86_400_000;

const requireStorage = (harness: ServerHarness): MemoryStorage => {
  if (harness.storage === null) throw new Error("this server has a disk");
  return harness.storage;
};

test("after a clean restart the server grants at once, with the same holders and queue entries", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const clients = [
    await harness.connectClient(),
    await harness.connectClient(),
    await harness.connectClient(),
  ] as const;
  const claims = clients.map(() => makeClaim("k"));
  const before = expectHeld(await clients[0].driver.claim(claims[0] as Claim));
  await clients[1].driver.claim(claims[1] as Claim);
  await clients[2].driver.claim(claims[2] as Claim);
  await harness.stop();
  await harness.start();
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
  await harness.clock.advance(2_000);
  expect(await claimState(clients[0], claims[0] as Claim)).toMatchObject({ state: "held", token: before.token });
  await clients[0].driver.release(toReleases(claims[0] as Claim));
  await flushEventLoop();
  expect(await claimState(clients[2], claims[2] as Claim)).toMatchObject({ state: "waiting" });
  const next = expectHeld(await claimState(clients[1], claims[1] as Claim));
  expect(next.token).toBeGreaterThan(before.token);
});

test("the saved table is used once: a crash right after a clean restart leads to recovery", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k");
  await client.driver.claim(claimA);
  client.isUnreachable = true;
  await harness.stop();
  await harness.start();
  harness.crash();
  await harness.start();
  expect(harness.inspect().isRecovering).toBe(true);
  expect(harness.inspect().records.size).toBe(0);
});

test("a lease continues after a clean restart with its remaining time", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  await client.driver.claim(makeClaim("k", { ttlMs: 20_000 }));
  await harness.clock.advance(15_000);
  client.isUnreachable = true;
  await harness.stop();
  await harness.start();
  const otherClient = await harness.connectClient();
  const claimB = makeClaim("k");
  await otherClient.driver.claim(claimB);
  await harness.clock.advance(4_900);
  expect(otherClient.pushes.filter(({ answer }) => answer !== undefined)).toEqual([]);
  await harness.clock.advance(200);
  expect(otherClient.pushes).toContainEqual({ id: claimB.id, answer: expect.objectContaining({ state: "held" }) });
});

test("after a clean restart the claims of a process that ended meanwhile end at once", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  await client.driver.claim(makeClaim("k", { ttlMs: "session" }));
  client.isUnreachable = true;
  client.processState = "gone";
  await harness.stop();
  await harness.start();
  await harness.clock.advance(10);
  const otherClient = await harness.connectClient();
  expectHeld(await otherClient.driver.claim(makeClaim("k", { wait: false })));
});

test("after a clean restart a stopped process keeps its session claim; a running one has a minute to reconnect", async () => {
  for (const process of ["stopped", "running"] as const) {
    const harness = new ServerHarness();
    await harness.start();
    const client = await harness.connectClient();
    await client.driver.claim(makeClaim("k", { ttlMs: "session" }));
    client.isUnreachable = true;
    client.processState = process;
    await harness.stop();
    await harness.start();
    await harness.clock.advance(59_000);
    expect(harness.inspect().records.size).toBe(1);
    await harness.clock.advance(10_000);
    expect(harness.inspect().records.size).toBe(process === "stopped" ? 1 : 0);
  }
});

test("a server that is stopped during recovery leaves the next one in recovery", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k");
  const before = expectHeld(await client.driver.claim(claimA));
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.stop();
  await harness.start();
  expect(harness.inspect().isRecovering).toBe(true);
  client.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held", token: before.token });
});

test("a claim with a lease of a day is on disk before it is answered, and is restored from there", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = requireStorage(harness);
  const client = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: DAY_MS });
  let open = (): void => undefined;
  disk.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  let isAnswered = false;
  const claim = client.driver.claim(claimA).then((answer) => {
    isAnswered = true;
    return answer;
  });
  await flushEventLoop(40);
  expect(isAnswered).toBe(false);
  open();
  const before = expectHeld(await claim);
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(61_000);
  const otherClient = await harness.connectClient();
  expect(await otherClient.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
  expect(await claimState(otherClient, claimA)).toMatchObject({ state: "held", token: before.token });
});

test("a waiting claim with a lease of a day is on disk before its client learns of the grant", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = requireStorage(harness);
  const client = await harness.connectClient();
  const otherClient = await harness.connectClient();
  const claimA = makeClaim("k");
  const claimB = makeClaim("k", { ttlMs: DAY_MS });
  await client.driver.claim(claimA);
  await otherClient.driver.claim(claimB);
  let open = (): void => undefined;
  disk.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  await client.driver.release(toReleases(claimA));
  const pendingRenewal = otherClient.driver.renew([claimB]);
  await flushEventLoop(40);
  expect(otherClient.pushes).toEqual([]);
  open();
  expect(await pendingRenewal).toMatchObject([{ state: "held" }]);
  expect(otherClient.pushes).toContainEqual({ id: claimB.id, answer: undefined });
});

test("a detached claim is restored after a crash, even if its client has gone", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: 20_000 });
  const before = expectHeld(await client.driver.claim(claimA));
  expect(await client.driver.detach?.([claimA])).toEqual([true]);
  client.processState = "gone";
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(10);
  const otherClient = await harness.connectClient();
  expect(await otherClient.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
  expect(await claimState(otherClient, claimA)).toMatchObject({ state: "held", token: before.token });
  expect(await otherClient.driver.release(toReleases(claimA))).toEqual([true]);
});

test("a long claim that was released or has ended is not restored", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const releasedClaim = makeClaim("a", { ttlMs: DAY_MS });
  const endedClaim = makeClaim("b", { ttlMs: 61_000 });
  await client.driver.claim(releasedClaim);
  await client.driver.claim(endedClaim);
  expect(await client.driver.release(toReleases(releasedClaim))).toEqual([true]);
  await harness.clock.advance(62_000);
  await flushEventLoop(40);
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(31_000);
  expect(harness.inspect().records.size).toBe(0);
});

test("the release of a long claim is on disk before it is answered", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = requireStorage(harness);
  const { driver } = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: DAY_MS });
  await driver.claim(claimA);
  let open = (): void => undefined;
  disk.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  let isAnswered = false;
  const pendingRelease = driver.release(toReleases(claimA)).finally(() => {
    isAnswered = true;
  });
  await flushEventLoop(40);
  expect(isAnswered).toBe(false);
  open();
  expect(await pendingRelease).toEqual([true]);
});

test("a queue whose clients reconnected in another order keeps its order over a clean restart", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const clients = [
    await harness.connectClient(),
    await harness.connectClient(),
    await harness.connectClient(),
  ] as const;
  const claims = [makeClaim("k"), makeClaim("k"), makeClaim("k")] as const;
  for (const [index, { driver }] of clients.entries()) await driver.claim(claims[index] as Claim);
  for (const client of clients) client.isUnreachable = true;
  harness.crash();
  await harness.start();
  for (const index of [2, 1, 0] as const) {
    clients[index].isUnreachable = false;
    await harness.clock.advance(2_500);
  }
  await harness.stop();
  await harness.start();
  await harness.clock.advance(2_500);
  await clients[0].driver.release(toReleases(claims[0]));
  await flushEventLoop();
  expect(await claimState(clients[1], claims[1])).toMatchObject({ state: "held" });
  expect(await claimState(clients[2], claims[2])).toMatchObject({ state: "waiting" });
});

test("the journal does not grow without bound", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const { driver } = await harness.connectClient();
  const keptClaim = makeClaim("kept", { ttlMs: DAY_MS });
  await driver.claim(keptClaim);
  for (let turn = 0; turn < 60; turn++) {
    const claims = Array.from({ length: 50 }, (_, index) => makeClaim(`k${index}`, { ttlMs: DAY_MS }));
    await Promise.all(claims.map((claim) => driver.claim(claim)));
    await driver.release(toReleases(...claims));
  }
  expect(requireStorage(harness).journal.split("\n").length).toBeLessThan(1_300);
  expect(requireStorage(harness).writes).toContain("rewrite");
  harness.crash();
  await harness.start();
  expect(harness.inspect().records.has(keptClaim.id)).toBe(true);
});

test("many long claims share one write", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const { driver } = await harness.connectClient();
  await driver.claim(makeClaim("first", { ttlMs: DAY_MS }));
  const before = requireStorage(harness).writes.length;
  await Promise.all(Array.from({ length: 100 }, (_, index) => driver.claim(makeClaim(`k${index}`, { ttlMs: DAY_MS }))));
  // the calls of one batch arrive in seven lines
  expect(requireStorage(harness).writes.length - before).toBeLessThan(8);
});

test("on a full disk calls that need no write succeed, others are refused with the reason, until there is room again", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = requireStorage(harness);
  const { driver } = await harness.connectClient();
  disk.isFull = true;
  const plainClaim = makeClaim("plain");
  expectHeld(await driver.claim(plainClaim));
  await expect(driver.claim(makeClaim("day", { ttlMs: DAY_MS }))).rejects.toThrow(/ENOSPC/);
  await expect(driver.claim(makeClaim("minute", { ttlMs: 60_000 }))).rejects.toThrow(/ENOSPC/);
  await expect(driver.detach?.([plainClaim])).rejects.toThrow(/ENOSPC/);
  await harness.clock.advance(29_000);
  await driver.renew([plainClaim]);
  await harness.clock.advance(10_000);
  await expect(driver.claim(makeClaim("late", { wait: false }))).rejects.toThrow(/ENOSPC/);
  const waits = makeClaim("plain");
  await driver.release(toReleases(plainClaim));
  disk.isFull = false;
  await harness.clock.advance(1_500);
  expectHeld(await driver.claim(waits));
  expectHeld(await driver.claim(makeClaim("day", { ttlMs: DAY_MS })));
  expectHeld(await driver.claim(makeClaim("late", { wait: false })));
  expect((await driver.list({ prefix: "day" }, { max: 10 })).items).toHaveLength(1);
});

test("after a shutdown on a full disk the next start is a recovery", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  await client.driver.claim(makeClaim("k"));
  client.isUnreachable = true;
  requireStorage(harness).isFull = true;
  await expect(harness.stop()).rejects.toThrow("the state could not be saved");
  harness.crash();
  requireStorage(harness).isFull = false;
  await harness.start();
  expect(harness.inspect().isRecovering).toBe(true);
});
