// What happens to claims, sessions and other claims while a write to the disk hangs for long, or fails.

import { expect, test } from "vitest";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { FakeDisk } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const DAY_MS = 86_400_000;

async function worldOf(remote = false): Promise<{ world: World; disk: FakeDisk }> {
  const world = new World({ remote });
  await world.start();
  return { world, disk: world.disk as FakeDisk };
}

test("a claim that was given back while it waited for the disk takes no place, however long the disk took", async () => {
  const { world, disk } = await worldOf();
  const { driver } = await world.client();
  const claim = claimOf("k", { ttlMs: 50_000 });
  const open = disk.hang();
  const first = driver.claim(claim);
  await turns();
  await driver.release([claim], new Set([claim.id]));
  await world.clock.pass(70_000);
  open();
  expect(await first).toMatchObject({ state: "none" });
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

test("a claim whose client has gone while it waited for the disk takes no place, although a child speaks for it", async () => {
  const { world, disk } = await worldOf();
  const one = await world.client();
  const open = disk.hang();
  const asked = one.driver.claim(claimOf("k", { ttlMs: 50_000 })).catch(() => null);
  await turns();
  const [session] = [...(world.kept?.sessions.all.values() ?? [])];
  session?.tethers.add({} as never);
  one.unreachable = true;
  one.cut();
  await asked;
  open();
  await turns();
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

test("a long claim that an operator takes away while it is journaled is not said to be held", async () => {
  const { world, disk } = await worldOf();
  const [one, operator] = [await world.client(), await world.client()];
  const claim = claimOf("k", { ttlMs: DAY_MS });
  const open = disk.hang();
  const first = one.driver.claim(claim);
  await turns();
  const token = [...(world.kept?.keeper.table.entries.values() ?? [])][0]?.token as number;
  const revoked = operator.driver.revoke?.([{ key: "k", token: BigInt(token), now: true }]);
  await turns();
  open();
  expect(await first).toEqual({ state: "none", reason: "revoked" });
  expect(await revoked).toEqual([true]);
});

test("a lease that ends while it is journaled is not said to be held", async () => {
  const { world, disk } = await worldOf();
  const { driver } = await world.client();
  const open = disk.hang();
  const first = driver.claim(claimOf("k", { ttlMs: 61_000 }));
  await world.clock.pass(70_000);
  open();
  expect(await first).toMatchObject({ state: "none" });
});

test("renewals of others do not fail with that of a long claim that the disk does not take", async () => {
  const { world, disk } = await worldOf();
  const { driver } = await world.client();
  const [other] = [await world.client()];
  const [short, long] = [claimOf("short"), claimOf("long", { ttlMs: DAY_MS })];
  const before = claimOf("long");
  held(await other.driver.claim(before));
  held(await driver.claim(short));
  expect(await driver.claim(long)).toMatchObject({ state: "waiting" });
  disk.full = true;
  await other.driver.release([before]);
  await turns();
  expect(await driver.renew([short, long])).toMatchObject([{ state: "held" }, undefined]);
  disk.full = false;
  await world.clock.pass(1_500);
  expect(await driver.renew([short, long])).toMatchObject([{ state: "held" }, { state: "held" }]);
});

test("renewals of others do not wait for the write of a long claim", async () => {
  const { world, disk } = await worldOf();
  const { driver } = await world.client();
  const other = await world.client();
  const [short, long] = [claimOf("short"), claimOf("long", { ttlMs: DAY_MS })];
  const before = claimOf("long");
  held(await other.driver.claim(before));
  held(await driver.claim(short));
  expect(await driver.claim(long)).toMatchObject({ state: "waiting" });
  const open = disk.hang();
  await other.driver.release([before]);
  await turns();
  const renewed = driver.renew([short, long]);
  await world.clock.pass(200);
  expect(await renewed).toMatchObject([{ state: "held" }, undefined]);
  open();
  await turns();
});

test("while only the journal cannot be written, claims that need no journal are granted: at once, and after a wait", async () => {
  const { world, disk } = await worldOf();
  const { driver } = await world.client();
  disk.full = "journal";
  await expect(driver.claim(claimOf("long", { ttlMs: DAY_MS }))).rejects.toThrow("ENOSPC");
  for (let turn = 0; turn < 10; turn++) {
    await world.clock.pass(10_000);
    const [now, later] = [claimOf("k", { wait: false }), claimOf("k")];
    held(await driver.claim(now));
    expect(await driver.claim(later)).toMatchObject({ state: "waiting" });
    await driver.release([now]);
    await turns();
    expect((await driver.renew([later]))[0]).toMatchObject({ state: "held" });
    await driver.release([later]);
  }
});

test("a waiter is granted although the journal has been failing for a minute in which nobody claimed anything", async () => {
  const { world, disk } = await worldOf();
  const [one, two] = [await world.client(), await world.client()];
  const [first, second] = [claimOf("k", { ttlMs: "session" }), claimOf("k", { ttlMs: "session" })];
  held(await one.driver.claim(first));
  expect(await two.driver.claim(second)).toMatchObject({ state: "waiting" });
  disk.full = "journal";
  await expect(one.driver.claim(claimOf("long", { ttlMs: DAY_MS }))).rejects.toThrow("ENOSPC");
  await world.clock.pass(90_000);
  await one.driver.release([first]);
  await world.clock.pass(2_000);
  expect((await two.driver.renew([second]))[0]).toMatchObject({ state: "held" });
});

test("a claim whose detaching could not be written ends with its session, which has ended meanwhile", async () => {
  const { world, disk } = await worldOf();
  const one = await world.client();
  const claim = claimOf("k");
  held(await one.driver.claim(claim));
  const open = disk.hang();
  const detached = one.driver.detach?.([claim]).catch(() => null);
  await turns();
  one.unreachable = true;
  one.cut();
  await detached;
  disk.full = true;
  open();
  await turns();
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

test("a claim that is given back while its detaching is written, and cannot be, leaves nothing with its session", async () => {
  const { world, disk } = await worldOf();
  const [one, other] = [await world.client(), await world.client()];
  const claim = claimOf("k");
  held(await one.driver.claim(claim));
  const open = disk.hang();
  const detached = one.driver.detach?.([claim]).catch(() => "failed");
  await turns();
  const released = other.driver.release([claim]);
  await turns();
  disk.full = true;
  open();
  expect(await detached).toBe("failed");
  expect(await released).toEqual([true]);
  for (const { entries } of world.kept?.sessions.all.values() ?? []) expect(entries.size).toBe(0);
});

test("detaching a claim whose lease has just ended leaves nothing with its session", async () => {
  const { world } = await worldOf();
  const { driver } = await world.client();
  const claim = claimOf("k", { ttlMs: 1_000 });
  held(await driver.claim(claim));
  const [session] = [...(world.kept?.sessions.all.values() ?? [])];
  const { keeper } = world.kept as NonNullable<World["kept"]>;
  world.clock.leap(1_500);
  expect(keeper.detach(session as never, [claim.id])).toEqual([false]);
  expect(session?.entries.size).toBe(0);
});

test("a shutdown while the disk hangs leaves the table for the next start, whoever waits for what", async () => {
  const { world, disk } = await worldOf();
  const [one, two] = [await world.client(), await world.client()];
  const [first, second] = [claimOf("k"), claimOf("k", { ttlMs: "session" })];
  held(await one.driver.claim(first));
  expect(await two.driver.claim(second)).toMatchObject({ state: "waiting" });
  const open = disk.hang();
  const placing = two.driver.claim(claimOf("other", { ttlMs: 50_000 })).catch(() => null);
  await turns();
  world.clock.wallAhead += 3_600_000;
  await one.driver.release([first]);
  await turns();
  const stopped = world.stop();
  await turns();
  open();
  await stopped;
  await placing;
  await turns();
  expect(disk.state).toContain('"clean":{');
});

test("claims: no more may wait for the disk than may be placed; those that wait are placed, and one that comes twice counts once", async () => {
  const world = new World({ remote: false, limits: { claims: 3 } });
  await world.start();
  const { driver } = await world.client();
  const disk = world.disk as FakeDisk;
  const three = (ttlMs: number) => ["a", "b", "c"].map((key) => claimOf(key, { ttlMs }));
  const open = disk.hang();
  const claims = three(50_000);
  const waiting = claims.map((claim) => driver.claim(claim));
  await turns();
  const again = driver.claim(claims[0] as (typeof claims)[0]);
  await expect(driver.claim(claimOf("d", { ttlMs: 50_000 }))).rejects.toThrow("at most 3 claims on this server");
  expect(world.kept?.keeper.table.entries.size).toBe(0);
  open();
  for (const answer of await Promise.all([...waiting, again])) held(answer);
  await driver.release(claims);
  // nothing of them, and of the one that was refused, is left to be counted
  const openAgain = disk.hang();
  const others = three(55_000).map((claim) => driver.claim(claim));
  await turns();
  openAgain();
  for (const answer of await Promise.all(others)) held(answer);
});
