// Clients that are disconnected or silent, over TCP and on a Unix socket.

import { expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { HarnessClient } from "../../support/server-harness.ts";
import { claimState, ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const isGranted = (client: HarnessClient, claim: Claim): boolean =>
  client.pushes.some(({ id, answer }) => id === claim.id && answer?.state === "held");

async function createNetworkHarness(): Promise<ServerHarness> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  return harness;
}

test("over TCP a lock outlives its connection until its lease ends", async () => {
  const harness = await createNetworkHarness();
  const client = await harness.connectClient(false);
  const otherClient = await harness.connectClient(false);
  const [claimA, claimB] = [makeClaim("k"), makeClaim("k")];
  await client.driver.claim(claimA);
  await otherClient.driver.claim(claimB);
  client.isUnreachable = true;
  client.disconnect();
  await harness.clock.advance(28_000);
  await otherClient.driver.renew([claimB]);
  expect(isGranted(otherClient, claimB)).toBe(false);
  await harness.clock.advance(2_500);
  expect(isGranted(otherClient, claimB)).toBe(true);
});

test("over TCP grants pass by a disconnected waiter; if it reconnects in time it has its old place", async () => {
  const harness = await createNetworkHarness();
  const [holder, cutClient, laterClient] = [
    await harness.connectClient(false),
    await harness.connectClient(false),
    await harness.connectClient(false),
  ];
  const [claimA, claimB, claimC, claimD] = [makeClaim("k"), makeClaim("k"), makeClaim("k"), makeClaim("k")];
  await holder.driver.claim(claimA);
  await cutClient.driver.claim(claimB);
  await laterClient.driver.claim(claimC);
  await laterClient.driver.claim(claimD);
  cutClient.isUnreachable = true;
  cutClient.disconnect();
  await flushEventLoop();
  await holder.driver.release(toReleases(claimA));
  await flushEventLoop();
  expect(isGranted(laterClient, claimC)).toBe(true);
  await harness.clock.advance(1_000);
  cutClient.isUnreachable = false;
  await harness.clock.advance(2_500);
  expect(await claimState(cutClient, claimB)).toMatchObject({ state: "waiting" });
  await laterClient.driver.release(toReleases(claimC));
  await flushEventLoop();
  expect(isGranted(cutClient, claimB)).toBe(true);
  expect(isGranted(laterClient, claimD)).toBe(false);
});

test("over TCP a waiter that does not reconnect loses its place after the reconnect grace", async () => {
  const harness = await createNetworkHarness();
  const [holder, cutClient] = [await harness.connectClient(false), await harness.connectClient(false)];
  const [claimA, claimB] = [makeClaim("k"), makeClaim("k")];
  await holder.driver.claim(claimA);
  await cutClient.driver.claim(claimB);
  cutClient.isUnreachable = true;
  cutClient.disconnect();
  await harness.clock.advance(4_900);
  expect(harness.inspect().records.has(claimB.id)).toBe(true);
  await harness.clock.advance(300);
  expect(harness.inspect().records.has(claimB.id)).toBe(false);
});

test("over TCP a session claim lasts while its client sends, and ends after 30 s of silence", async () => {
  const harness = await createNetworkHarness();
  const client = await harness.connectClient(false);
  const claimA = makeClaim("k", { ttlMs: "session" });
  await client.driver.claim(claimA);
  await harness.clock.advance(300_000);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
  client.isUnreachable = true;
  client.disconnect();
  await harness.clock.advance(29_000);
  expect(harness.inspect().records.has(claimA.id)).toBe(true);
  await harness.clock.advance(11_500);
  expect(harness.inspect().records.has(claimA.id)).toBe(false);
});

test("on a Unix socket silence never ends a session claim", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: "session" });
  await client.driver.claim(claimA);
  await harness.clock.advance(7 * 86_400_000);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
});

test("a newer connection of a session replaces the older", async () => {
  const harness = await createNetworkHarness();
  const client = await harness.connectClient(false);
  const claimA = makeClaim("k");
  await client.driver.claim(claimA);
  client.disconnect();
  await harness.clock.advance(100);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
  expect(client.pushes).toContainEqual({ id: null, answer: undefined });
});

test("calls made just after a disconnection wait for the new connection; later ones fail at once", async () => {
  const harness = await createNetworkHarness();
  const client = await harness.connectClient(false);
  await client.driver.claim(makeClaim("kept"));
  client.disconnect();
  await flushEventLoop();
  const pendingClaim = client.driver.claim(makeClaim("a"));
  await harness.clock.advance(500);
  expectHeld(await pendingClaim);
  client.isUnreachable = true;
  client.disconnect();
  await flushEventLoop();
  const rejection = expect(client.driver.claim(makeClaim("b"))).rejects.toThrow(/cannot be reached/);
  await harness.clock.advance(1_500);
  await rejection;
  await expect(client.driver.claim(makeClaim("c"))).rejects.toThrow(/cannot be reached/);
});

test("an ended session leaves nothing behind", async () => {
  const harness = await createNetworkHarness();
  for (let turn = 0; turn < 50; turn++) {
    const client = await harness.connectClient(turn % 2 === 0);
    const [claimA, claimB] = [makeClaim("k"), makeClaim("k")];
    await client.driver.claim(claimA);
    await client.driver.claim(claimB);
    await client.driver.close();
    await flushEventLoop();
  }
  await harness.clock.advance(90_000);
  expect(harness.inspect().sessions.size).toBe(0);
  expect(harness.inspect().records.size).toBe(0);
  expect(harness.storage?.sessions).toEqual([]);
  expect(harness.inspect().backend.nextDueAt()).toBe(Number.POSITIVE_INFINITY);
});

test("over TCP a client detects that its connection is a black hole, and reconnects", async () => {
  const harness = await createNetworkHarness();
  const client = await harness.connectClient(false);
  const claimA = makeClaim("k", { ttlMs: 90_000 });
  await client.driver.claim(claimA);
  client.dropsTraffic = true;
  const rejection = expect(client.driver.renew([claimA])).rejects.toThrow(/was lost/);
  await harness.clock.advance(20_500);
  await rejection;
  client.dropsTraffic = false;
  await harness.clock.advance(5_500);
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
  expect(client.pushes).toContainEqual({ id: null, answer: undefined });
});

test("on a Unix socket a client never gives up a connection because the server is silent", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const claimA = makeClaim("k", { ttlMs: "session" });
  await client.driver.claim(claimA);
  client.dropsTraffic = true;
  let isSettled = false;
  const pendingRenewal = client.driver.renew([claimA]).finally(() => {
    isSettled = true;
  });
  await harness.clock.advance(600_000);
  expect(isSettled).toBe(false);
  client.dropsTraffic = false;
  expect(await claimState(client, claimA)).toMatchObject({ state: "held" });
  await client.driver.close();
  await expect(pendingRenewal).rejects.toThrow(/closed/);
});

test("a client that only waits for pushes pings no more than it must, and an idle one not at all", async () => {
  const harness = await createNetworkHarness();
  const client = await harness.connectClient(false);
  const sentCount = client.linesSent;
  await harness.clock.advance(300_000);
  expect(client.linesSent).toBe(sentCount);
  const claimA = makeClaim("k", { ttlMs: "session" });
  await client.driver.claim(claimA);
  await harness.clock.advance(100_000);
  expect(client.linesSent - sentCount).toBeGreaterThanOrEqual(10);
  expect(client.linesSent - sentCount).toBeLessThanOrEqual(12);
});

test("while TCP clients have not reconnected after a restart, the server's timer sleeps until something is due", async () => {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  expectHeld(await client.driver.claim(makeClaim("k", { ttlMs: 60_000 })));
  client.isUnreachable = true;
  await harness.stop();
  await harness.start();
  await client.driver.close();
  const before = harness.clock.timerFires;
  await harness.clock.advance(100_000);
  expect(harness.clock.timerFires - before).toBeLessThan(50);
});
