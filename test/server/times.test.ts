// One reading of the clocks for all calls of a batch, and no longer than that.

import { expect, test } from "vitest";
import type { Keeper } from "../../src/server/keeper.ts";
import type { Session } from "../../src/server/session.ts";
import { Times } from "../../src/server/times.ts";
import { claimOf, cleanUp } from "./support.ts";
import { FakeClock, World } from "./world.ts";

cleanUp();

test("time stands still from begin() to end(), and goes on behind it", () => {
  const clock = new FakeClock();
  const times = new Times(clock);
  const before = times.get();
  clock.leap(10);
  expect(times.get().now).toBe(before.now + 10);
  times.begin();
  const first = times.get();
  clock.leap(10);
  expect(times.get()).toEqual(first);
  times.end();
  expect(times.get()).toEqual({ now: first.now + 10, micros: first.micros + 10_000 });
});

test("a batch begins with a new reading, also if the last one was not ended", () => {
  const clock = new FakeClock();
  const times = new Times(clock);
  times.begin();
  const { now } = times.get();
  clock.leap(10);
  times.begin();
  expect(times.get().now).toBe(now + 10);
});

test("who is served outside a line, as over HTTP, has the time of then, not that of the last line", async () => {
  const world = new World();
  await world.start();
  const { driver } = await world.client();
  const mine = claimOf("mine");
  await driver.claim(mine);
  const keeper = world.kept?.keeper as Keeper;
  const { table } = keeper;
  const session = table.entries.get(mine.id)?.owner as Session;
  world.clock.leap(5_000);
  const other = claimOf("other", { ttlMs: 10_000 });
  void keeper.claim(session, other);
  expect(table.entries.get(other.id)?.expiresAt).toBe(world.clock.now() + 10_000);
  expect(table.entries.get(other.id)?.token).toBe(world.clock.wall() * 1_000);
});
