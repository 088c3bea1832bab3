// A server that recovers: what it says of keys that are known to be held, and of those that nobody has told of yet.

import { expect, test } from "vitest";
import { claimOf, cleanUp, held, running } from "./support.ts";
import { World } from "./world.ts";

cleanUp();

/** A server that was restarted after a crash; one holds "a" and has told so, another that may hold has not come back. */
async function recovering(): Promise<{ world: World; one: Awaited<ReturnType<World["client"]>> }> {
  const world = new World({ remote: true });
  await world.start();
  const one = await world.client(false);
  const silent = await world.client(false);
  held(await one.driver.claim(claimOf("a")));
  held(await silent.driver.claim(claimOf("b")));
  silent.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(5_000);
  expect(world.kept?.keeper.reclaiming).toBe(true);
  return { world, one };
}

test("a key that is known to be held is busy; of any other it is not known whether it is free", async () => {
  const { world, one } = await recovering();
  const once = (key: string | readonly string[]) => one.driver.claim(claimOf(key, { wait: false }));
  expect(await once("a")).toEqual({ state: "none" });
  expect(await once(["a", "free"])).toEqual({ state: "none" });
  const paused = { reason: "recovery", remainingMs: expect.closeTo(25_000, -3) };
  for (const key of ["b", "free", ["b", "free"]]) expect(await once(key)).toEqual({ state: "none", paused });
  // one that somebody waits for is nobody's yet
  const waiter = claimOf("free");
  expect(await one.driver.claim(waiter)).toMatchObject({ state: "waiting", paused });
  expect(await once("free")).toEqual({ state: "none", paused });
  expect((await one.driver.renew([waiter]))[0]).toMatchObject({ state: "waiting", paused });
  expect(world.kept?.keeper.table.entries.size).toBe(2);
  await world.clock.pass(26_000);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  held((await one.driver.renew([waiter]))[0]);
  const behind = await one.driver.claim(claimOf("free"));
  expect(behind).toMatchObject({ state: "waiting" });
  expect(behind).not.toHaveProperty("paused");
  expect(await once("free")).toEqual({ state: "none" });
  held(await one.driver.claim(claimOf("b", { wait: false })));
});

test("permits that are known to be held count, and what fits beside them is unknown", async () => {
  const { one } = await recovering();
  const once = (permits: number, limit: number) =>
    one.driver.claim(claimOf([{ key: "s", permits, limit }], { wait: false }));
  expect(await once(1, 2)).toMatchObject({ state: "none", paused: { reason: "recovery" } });
  const reader = [{ key: "a", permits: 1, limit: 3 }];
  expect(await one.driver.claim(claimOf(reader, { wait: false }))).toEqual({ state: "none" });
});

test("serve() logs that nothing new is granted, why and for how long, and when that is over", async () => {
  const first = await running({ listen: "tcp://127.0.0.1:0" });
  expect(first.logged).toEqual([]);
  const stateless = await running({ state: "none" });
  expect(stateless.logged).toEqual([
    'nothing is kept of the last run: granting nothing new for up to 60 s {"level":"warn"}',
  ]);

  const { world } = await recovering();
  expect(world.logged.filter((said) => /grant/.test(said))).toEqual([
    expect.stringMatching(/^the last server did not stop cleanly: granting nothing new for up to 30 s/),
  ]);
  await world.clock.pass(26_000);
  expect(world.logged.at(-1)).toMatch(/^recovery is over: new locks are granted/);
});
