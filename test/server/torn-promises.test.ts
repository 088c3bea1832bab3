/** What stands in the journal is promised: a later write that fails must not take it back. */

import { expect, test } from "vitest";
import { claimOf, cleanUp, held } from "./support.ts";
import type { FakeDisk } from "./world.ts";
import { World } from "./world.ts";

const DAY_MS = 86_400_000;

cleanUp();

test("a long claim whose detaching could not be written is still on disk when others are written, and comes back", async () => {
  const world = new World();
  await world.start();
  const disk = world.disk as FakeDisk;
  const one = await world.client();
  const other = await world.client();
  const day = claimOf("day", { ttlMs: DAY_MS });
  const { token } = held(await one.driver.claim(day));
  disk.full = true;
  await expect(one.driver.detach?.([day])).rejects.toThrow(/ENOSPC/);
  disk.full = false;
  await world.clock.pass(1_500);
  held(await other.driver.claim(claimOf("another", { ttlMs: DAY_MS })));
  // its holder is cut off, and believes for a day
  one.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(61_000);
  const rival = await world.client();
  expect(await rival.driver.claim(claimOf("day", { wait: false }))).toEqual({ state: "none" });
  one.unreachable = false;
  await world.clock.pass(5_000);
  expect(await one.driver.renew([day])).toMatchObject([{ state: "held", token }]);
});

test("a lock of the journal that was revoked is revoked after a crash, too, and one that was taken away is gone", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const operator = await world.client();
  const [revoked, removed] = [claimOf("revoked", { ttlMs: DAY_MS }), claimOf("removed", { ttlMs: DAY_MS })];
  const tokens = [held(await one.driver.claim(revoked)).token, held(await one.driver.claim(removed)).token] as const;
  const targets = [
    { key: "revoked", token: tokens[0], now: false },
    { key: "removed", token: tokens[1], now: true },
  ];
  one.unreachable = true;
  expect(await operator.driver.revoke?.(targets)).toEqual([true, true]);
  world.crash();
  await world.start();
  one.unreachable = false;
  await world.clock.pass(61_000);
  expect(await one.driver.renew([revoked])).toEqual([{ state: "none", reason: "revoked" }]);
  expect(await operator.driver.claim(claimOf("revoked", { wait: false }))).toEqual({ state: "none" });
  held(await operator.driver.claim(claimOf("removed", { wait: false })));
});

test("a long claim that was given back while the disk was full does not come back, once the disk had room again", async () => {
  const world = new World();
  await world.start();
  const disk = world.disk as FakeDisk;
  const { driver } = await world.client();
  const [released, ended] = [claimOf("a", { ttlMs: DAY_MS }), claimOf("b", { ttlMs: DAY_MS })];
  held(await driver.claim(released));
  const { token } = held(await driver.claim(ended));
  disk.full = true;
  expect(await driver.release([released])).toEqual([true]);
  expect(await driver.revoke?.([{ key: "b", token, now: true }])).toEqual([true]);
  await world.clock.pass(5_000);
  disk.full = false;
  await world.clock.pass(5_000);
  world.crash();
  await world.start();
  await world.clock.pass(61_000);
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

test("a lock that was detached stays so when it is detached once more and the disk fails", async () => {
  const world = new World();
  await world.start();
  const disk = world.disk as FakeDisk;
  const [one, rival] = [await world.client(), await world.client()];
  const claim = claimOf("k");
  held(await one.driver.claim(claim));
  expect(await one.driver.detach?.([claim])).toEqual([true]);
  disk.full = true;
  // as a client does that has not heard the answer
  expect(await one.driver.detach?.([claim])).toEqual([true]);
  one.unreachable = true;
  one.cut();
  expect(await rival.driver.claim(claimOf("k", { wait: false }))).toEqual({ state: "none" });
});
