// Clients that are cut off or fall silent, over TCP and on a Unix socket.

import { expect, test } from "vitest";
import type { Claim } from "../../src/spi/driver.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { Player } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const stands = async (player: Player, claim: Claim) => (await player.driver.renew([claim]))[0];
const isGranted = (player: Player, claim: Claim): boolean =>
  player.pushes.some(({ id, answer }) => id === claim.id && answer?.state === "held");

async function network(): Promise<World> {
  const world = new World({ remote: true });
  await world.start();
  return world;
}

test("over TCP a hold outlives its connection until its lease ends", async () => {
  const world = await network();
  const one = await world.client(false);
  const other = await world.client(false);
  const [a, b] = [claimOf("k"), claimOf("k")];
  await one.driver.claim(a);
  await other.driver.claim(b);
  one.unreachable = true;
  one.cut();
  await world.clock.pass(28_000);
  await other.driver.renew([b]);
  expect(isGranted(other, b)).toBe(false);
  await world.clock.pass(2_500);
  expect(isGranted(other, b)).toBe(true);
});

test("over TCP grants pass over a waiter that is cut off; back in time it has its old place", async () => {
  const world = await network();
  const [holder, cut, behind] = [await world.client(false), await world.client(false), await world.client(false)];
  const [a, b, c, d] = [claimOf("k"), claimOf("k"), claimOf("k"), claimOf("k")];
  await holder.driver.claim(a);
  await cut.driver.claim(b);
  await behind.driver.claim(c);
  await behind.driver.claim(d);
  cut.unreachable = true;
  cut.cut();
  await turns();
  await holder.driver.release([a]);
  await turns();
  expect(isGranted(behind, c)).toBe(true);
  await world.clock.pass(1_000);
  cut.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(cut, b)).toMatchObject({ state: "waiting" });
  await behind.driver.release([c]);
  await turns();
  expect(isGranted(cut, b)).toBe(true);
  expect(isGranted(behind, d)).toBe(false);
});

test("over TCP a waiter that does not come back loses its place after the grace", async () => {
  const world = await network();
  const [holder, cut] = [await world.client(false), await world.client(false)];
  const [a, b] = [claimOf("k"), claimOf("k")];
  await holder.driver.claim(a);
  await cut.driver.claim(b);
  cut.unreachable = true;
  cut.cut();
  await world.clock.pass(4_900);
  expect(world.kept?.keeper.table.entries.has(b.id)).toBe(true);
  await world.clock.pass(300);
  expect(world.kept?.keeper.table.entries.has(b.id)).toBe(false);
});

test("over TCP a session claim lasts while its client speaks, and ends 30 s after it fell silent", async () => {
  const world = await network();
  const one = await world.client(false);
  const a = claimOf("k", { ttlMs: "session" });
  await one.driver.claim(a);
  await world.clock.pass(300_000);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
  one.unreachable = true;
  one.cut();
  await world.clock.pass(29_000);
  expect(world.kept?.keeper.table.entries.has(a.id)).toBe(true);
  await world.clock.pass(11_500);
  expect(world.kept?.keeper.table.entries.has(a.id)).toBe(false);
});

test("on a Unix socket a session claim never ends by silence", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k", { ttlMs: "session" });
  await one.driver.claim(a);
  await world.clock.pass(7 * 86_400_000);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
});

test("a newer connection of a session replaces the older", async () => {
  const world = await network();
  const one = await world.client(false);
  const a = claimOf("k");
  await one.driver.claim(a);
  one.cut();
  await world.clock.pass(100);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
  expect(one.pushes).toContainEqual({ id: null, answer: undefined });
});

test("calls made just after a cut wait for the new connection; later ones fail at once", async () => {
  const world = await network();
  const one = await world.client(false);
  await one.driver.claim(claimOf("kept"));
  one.cut();
  await turns();
  const soon = one.driver.claim(claimOf("a"));
  await world.clock.pass(500);
  held(await soon);
  one.unreachable = true;
  one.cut();
  await turns();
  const hopeless = expect(one.driver.claim(claimOf("b"))).rejects.toThrow(/cannot be reached/);
  await world.clock.pass(1_500);
  await hopeless;
  await expect(one.driver.claim(claimOf("c"))).rejects.toThrow(/cannot be reached/);
});

test("a session that has gone leaves nothing behind", async () => {
  const world = await network();
  for (let turn = 0; turn < 50; turn++) {
    const one = await world.client(turn % 2 === 0);
    const [a, b] = [claimOf("k"), claimOf("k")];
    await one.driver.claim(a);
    await one.driver.claim(b);
    await one.driver.close();
    await turns();
  }
  await world.clock.pass(90_000);
  expect(world.kept?.sessions.all.size).toBe(0);
  expect(world.kept?.keeper.table.entries.size).toBe(0);
  expect(world.disk?.sessions).toEqual([]);
  expect(world.kept?.keeper.nextDue()).toBe(Number.POSITIVE_INFINITY);
});

test("over TCP a client finds out that its connection is a black hole, and dials again", async () => {
  const world = await network();
  const one = await world.client(false);
  const a = claimOf("k", { ttlMs: 90_000 });
  await one.driver.claim(a);
  one.blackHole = true;
  const lost = expect(one.driver.renew([a])).rejects.toThrow(/was lost/);
  await world.clock.pass(20_500);
  await lost;
  one.blackHole = false;
  await world.clock.pass(5_500);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
  expect(one.pushes).toContainEqual({ id: null, answer: undefined });
});

test("on a Unix socket a client never gives up a connection because the server is silent", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k", { ttlMs: "session" });
  await one.driver.claim(a);
  one.blackHole = true;
  let settled = false;
  const asked = one.driver.renew([a]).finally(() => {
    settled = true;
  });
  await world.clock.pass(600_000);
  expect(settled).toBe(false);
  one.blackHole = false;
  expect(await stands(one, a)).toMatchObject({ state: "held" });
  await one.driver.close();
  await expect(asked).rejects.toThrow(/closed/);
});

test("a client that only waits for pushes pings no more than it must, and an idle one not at all", async () => {
  const world = await network();
  const one = await world.client(false);
  const sent = one.sent;
  await world.clock.pass(300_000);
  expect(one.sent).toBe(sent);
  const a = claimOf("k", { ttlMs: "session" });
  await one.driver.claim(a);
  await world.clock.pass(100_000);
  expect(one.sent - sent).toBeGreaterThanOrEqual(10);
  expect(one.sent - sent).toBeLessThanOrEqual(12);
});

test("while clients of the network do not come back after a restart, the server sleeps until something is due", async () => {
  const world = new World({ remote: true });
  await world.start();
  const one = await world.client(false);
  held(await one.driver.claim(claimOf("k", { ttlMs: 60_000 })));
  one.unreachable = true;
  await world.stop();
  await world.start();
  await one.driver.close();
  const before = world.clock.rings;
  await world.clock.pass(100_000);
  expect(world.clock.rings - before).toBeLessThan(50);
});
