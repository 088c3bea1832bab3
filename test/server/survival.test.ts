// What outlives a clean shutdown, what stands in the journal, and what a disk that fails ends.

import { expect, test } from "vitest";
import type { Claim } from "../../src/spi/driver.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { FakeDisk, Player } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const DAY_MS = 86_400_000;

const stands = async (player: Player, claim: Claim) => (await player.driver.renew([claim]))[0];
const diskOf = (world: World): FakeDisk => {
  if (world.disk === null) throw new Error("this world has a disk");
  return world.disk;
};

test("a clean restart opens at once; holds and places are as they were", async () => {
  const world = new World();
  await world.start();
  const players = [await world.client(), await world.client(), await world.client()] as const;
  const claims = players.map(() => claimOf("k"));
  const before = held(await players[0].driver.claim(claims[0] as Claim));
  await players[1].driver.claim(claims[1] as Claim);
  await players[2].driver.claim(claims[2] as Claim);
  await world.stop();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
  await world.clock.pass(2_000);
  expect(await stands(players[0], claims[0] as Claim)).toMatchObject({ state: "held", token: before.token });
  await players[0].driver.release([claims[0] as Claim]);
  await turns();
  expect(await stands(players[2], claims[2] as Claim)).toMatchObject({ state: "waiting" });
  const next = held(await stands(players[1], claims[1] as Claim));
  expect(next.token).toBeGreaterThan(before.token);
});

test("the saved table is used once: a crash right after a clean restart is a crash", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k");
  await one.driver.claim(a);
  one.unreachable = true;
  await world.stop();
  await world.start();
  world.crash();
  await world.start();
  expect(world.kept?.keeper.reclaiming).toBe(true);
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

test("over a clean restart a lease goes on with what it had left", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  await one.driver.claim(claimOf("k", { ttlMs: 20_000 }));
  await world.clock.pass(15_000);
  one.unreachable = true;
  await world.stop();
  await world.start();
  const other = await world.client();
  const b = claimOf("k");
  await other.driver.claim(b);
  await world.clock.pass(4_900);
  expect(other.pushes.filter(({ answer }) => answer !== undefined)).toEqual([]);
  await world.clock.pass(200);
  expect(other.pushes).toContainEqual({ id: b.id, answer: expect.objectContaining({ state: "held" }) });
});

test("after a clean restart the claims of a process that has gone meanwhile are ended at once", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  await one.driver.claim(claimOf("k", { ttlMs: "session" }));
  one.unreachable = true;
  one.process = "gone";
  await world.stop();
  await world.start();
  await world.clock.pass(10);
  const other = await world.client();
  held(await other.driver.claim(claimOf("k", { wait: false })));
});

test("after a clean restart a stopped process keeps its session claim; a living one has a minute to come back", async () => {
  for (const process of ["stopped", "running"] as const) {
    const world = new World();
    await world.start();
    const one = await world.client();
    await one.driver.claim(claimOf("k", { ttlMs: "session" }));
    one.unreachable = true;
    one.process = process;
    await world.stop();
    await world.start();
    await world.clock.pass(59_000);
    expect(world.kept?.keeper.table.entries.size).toBe(1);
    await world.clock.pass(10_000);
    expect(world.kept?.keeper.table.entries.size).toBe(process === "stopped" ? 1 : 0);
  }
});

test("a server that is stopped while it reclaims leaves the next one reclaiming", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k");
  const before = held(await one.driver.claim(a));
  one.unreachable = true;
  world.crash();
  await world.start();
  await world.stop();
  await world.start();
  expect(world.kept?.keeper.reclaiming).toBe(true);
  one.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(one, a)).toMatchObject({ state: "held", token: before.token });
});

test("a claim of a day is on disk before it is answered, and comes back from there", async () => {
  const world = new World();
  await world.start();
  const disk = diskOf(world);
  const one = await world.client();
  const a = claimOf("k", { ttlMs: DAY_MS });
  let open = (): void => undefined;
  disk.gate = new Promise((resolve) => {
    open = resolve;
  });
  let answered = false;
  const claim = one.driver.claim(a).then((answer) => {
    answered = true;
    return answer;
  });
  await turns(40);
  expect(answered).toBe(false);
  open();
  const before = held(await claim);
  one.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(61_000);
  const other = await world.client();
  expect(await other.driver.claim(claimOf("k", { wait: false }))).toEqual({ state: "none" });
  expect(await stands(other, a)).toMatchObject({ state: "held", token: before.token });
});

test("a waiting claim of a day is on disk before its client is told of the grant", async () => {
  const world = new World();
  await world.start();
  const disk = diskOf(world);
  const one = await world.client();
  const other = await world.client();
  const a = claimOf("k");
  const b = claimOf("k", { ttlMs: DAY_MS });
  await one.driver.claim(a);
  await other.driver.claim(b);
  let open = (): void => undefined;
  disk.gate = new Promise((resolve) => {
    open = resolve;
  });
  await one.driver.release([a]);
  const asked = other.driver.renew([b]);
  await turns(40);
  expect(other.pushes).toEqual([]);
  open();
  expect(await asked).toMatchObject([{ state: "held" }]);
  expect(other.pushes).toContainEqual({ id: b.id, answer: undefined });
});

test("a detached claim comes back after a crash, whoever has gone", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k", { ttlMs: 20_000 });
  const before = held(await one.driver.claim(a));
  expect(await one.driver.detach?.([a])).toEqual([true]);
  one.process = "gone";
  one.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(10);
  const other = await world.client();
  expect(await other.driver.claim(claimOf("k", { wait: false }))).toEqual({ state: "none" });
  expect(await stands(other, a)).toMatchObject({ state: "held", token: before.token });
  expect(await other.driver.release([a])).toEqual([true]);
});

test("a long claim that was released, or has ended, does not come back", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const released = claimOf("a", { ttlMs: DAY_MS });
  const ended = claimOf("b", { ttlMs: 61_000 });
  await one.driver.claim(released);
  await one.driver.claim(ended);
  expect(await one.driver.release([released])).toEqual([true]);
  await world.clock.pass(62_000);
  await turns(40);
  one.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(31_000);
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

test("a long claim is not said to be released before that is on disk", async () => {
  const world = new World();
  await world.start();
  const disk = diskOf(world);
  const { driver } = await world.client();
  const a = claimOf("k", { ttlMs: DAY_MS });
  await driver.claim(a);
  let open = (): void => undefined;
  disk.gate = new Promise((resolve) => {
    open = resolve;
  });
  let answered = false;
  const released = driver.release([a]).finally(() => {
    answered = true;
  });
  await turns(40);
  expect(answered).toBe(false);
  open();
  expect(await released).toEqual([true]);
});

test("a line whose clients came back in disorder keeps its order over a clean restart, too", async () => {
  const world = new World();
  await world.start();
  const players = [await world.client(), await world.client(), await world.client()] as const;
  const claims = [claimOf("k"), claimOf("k"), claimOf("k")] as const;
  for (const [at, { driver }] of players.entries()) await driver.claim(claims[at] as Claim);
  for (const player of players) player.unreachable = true;
  world.crash();
  await world.start();
  for (const at of [2, 1, 0] as const) {
    players[at].unreachable = false;
    await world.clock.pass(2_500);
  }
  await world.stop();
  await world.start();
  await world.clock.pass(2_500);
  await players[0].driver.release([claims[0]]);
  await turns();
  expect(await stands(players[1], claims[1])).toMatchObject({ state: "held" });
  expect(await stands(players[2], claims[2])).toMatchObject({ state: "waiting" });
});

test("the journal does not grow for ever", async () => {
  const world = new World();
  await world.start();
  const { driver } = await world.client();
  const kept = claimOf("kept", { ttlMs: DAY_MS });
  await driver.claim(kept);
  for (let turn = 0; turn < 60; turn++) {
    const claims = Array.from({ length: 50 }, (_, at) => claimOf(`k${at}`, { ttlMs: DAY_MS }));
    await Promise.all(claims.map((claim) => driver.claim(claim)));
    await driver.release(claims);
  }
  expect(diskOf(world).journal.split("\n").length).toBeLessThan(1_300);
  expect(diskOf(world).writes).toContain("rewrite");
  world.crash();
  await world.start();
  expect(world.kept?.keeper.table.entries.has(kept.id)).toBe(true);
});

test("many long claims share a write", async () => {
  const world = new World();
  await world.start();
  const { driver } = await world.client();
  await driver.claim(claimOf("first", { ttlMs: DAY_MS }));
  const before = diskOf(world).writes.length;
  await Promise.all(Array.from({ length: 100 }, (_, at) => driver.claim(claimOf(`k${at}`, { ttlMs: DAY_MS }))));
  // the calls of one turn come in seven lines
  expect(diskOf(world).writes.length - before).toBeLessThan(8);
});

test("on a full disk: what needs no write goes on, what needs one is refused with the reason, and recovers", async () => {
  const world = new World();
  await world.start();
  const disk = diskOf(world);
  const { driver } = await world.client();
  disk.full = true;
  const plain = claimOf("plain");
  held(await driver.claim(plain));
  await expect(driver.claim(claimOf("day", { ttlMs: DAY_MS }))).rejects.toThrow(/ENOSPC/);
  await expect(driver.claim(claimOf("minute", { ttlMs: 60_000 }))).rejects.toThrow(/ENOSPC/);
  await expect(driver.detach?.([plain])).rejects.toThrow(/ENOSPC/);
  await world.clock.pass(29_000);
  await driver.renew([plain]);
  await world.clock.pass(10_000);
  await expect(driver.claim(claimOf("late", { wait: false }))).rejects.toThrow(/ENOSPC/);
  const waits = claimOf("plain");
  await driver.release([plain]);
  disk.full = false;
  await world.clock.pass(1_500);
  held(await driver.claim(waits));
  held(await driver.claim(claimOf("day", { ttlMs: DAY_MS })));
  held(await driver.claim(claimOf("late", { wait: false })));
  expect(await driver.list({ prefix: "day" }, 10)).toHaveLength(1);
});

test("a shutdown on a full disk is a crash to the next start", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  await one.driver.claim(claimOf("k"));
  one.unreachable = true;
  diskOf(world).full = true;
  await expect(world.stop()).rejects.toThrow(/no space/);
  world.crash();
  diskOf(world).full = false;
  await world.start();
  expect(world.kept?.keeper.reclaiming).toBe(true);
});
