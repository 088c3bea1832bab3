// Answers during recovery: for keys that are known to be held, and for keys that no client has reported yet.

import { expect, test } from "vitest";
import { cleanUpAfterEach, expectHeld, makeClaim, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

cleanUpAfterEach();

/** A server that was restarted after a crash; one holder of "a" has reclaimed it, another possible holder has not reconnected. */
async function startRecovering(): Promise<{
  world: ServerHarness;
  one: Awaited<ReturnType<ServerHarness["connectClient"]>>;
}> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  const silent = await harness.connectClient(false);
  expectHeld(await client.driver.claim(makeClaim("a")));
  expectHeld(await silent.driver.claim(makeClaim("b")));
  silent.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(5_000);
  expect(harness.inspect().isRecovering).toBe(true);
  return { world: harness, one: client };
}

test("a reclaimed key is busy; for any other key it is unknown whether it is free", async () => {
  const { world, one } = await startRecovering();
  const once = (key: string | readonly string[]) => one.driver.claim(makeClaim(key, { wait: false }));
  expect(await once("a")).toEqual({ state: "none" });
  expect(await once(["a", "free"])).toEqual({ state: "none" });
  const paused = { reason: "recovery", remainingMs: expect.closeTo(25_000, -3) };
  for (const key of ["b", "free", ["b", "free"]]) expect(await once(key)).toEqual({ state: "none", paused });
  // a key with a waiter only has no holder yet
  const waiter = makeClaim("free");
  expect(await one.driver.claim(waiter)).toMatchObject({ state: "waiting", paused });
  expect(await once("free")).toEqual({ state: "none", paused });
  expect((await one.driver.renew([waiter]))[0]).toMatchObject({ state: "waiting", paused });
  expect(world.inspect().records.size).toBe(2);
  await world.clock.advance(26_000);
  expect(world.inspect().isRecovering).toBe(false);
  expectHeld((await one.driver.renew([waiter]))[0]);
  const behind = await one.driver.claim(makeClaim("free"));
  expect(behind).toMatchObject({ state: "waiting" });
  expect(behind).not.toHaveProperty("paused");
  expect(await once("free")).toEqual({ state: "none" });
  expectHeld(await one.driver.claim(makeClaim("b", { wait: false })));
});

test("reclaimed permits count, and whether further permits are free is unknown", async () => {
  const { one } = await startRecovering();
  const once = (permits: number, limit: number) =>
    one.driver.claim(makeClaim([{ key: "s", permits, limit }], { wait: false }));
  expect(await once(1, 2)).toMatchObject({ state: "none", paused: { reason: "recovery" } });
  const reader = [{ key: "a", permits: 1, limit: 3 }];
  expect(await one.driver.claim(makeClaim(reader, { wait: false }))).toEqual({ state: "none" });
});

test("serve() logs that nothing new is granted, why and for how long, and when that is over", async () => {
  const first = await startServer({ listen: "tcp://127.0.0.1:0" });
  expect(first.logged).toEqual([]);
  const stateless = await startServer({ state: "none" });
  expect(stateless.logged).toEqual([
    'no state is kept from the previous run: granting nothing new for up to 60 s {"level":"warn"}',
  ]);

  const { world } = await startRecovering();
  expect(world.logLines.filter((said) => /grant/.test(said))).toEqual([
    expect.stringMatching(/^the previous run of the server did not stop cleanly: granting nothing new for up to 30 s/),
  ]);
  await world.clock.advance(26_000);
  expect(world.logLines.at(-1)).toMatch(/^recovery is over: new locks are granted/);
});
