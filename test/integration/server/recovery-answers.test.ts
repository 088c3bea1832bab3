// Answers during recovery: for keys that are known to be held, and for keys that no client has reported yet.

import { expect, test } from "vitest";
import { cleanUpAfterEach, expectHeld, makeClaim, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

cleanUpAfterEach();

/** A server that was restarted after a crash; one holder of "a" has reclaimed it, another possible holder has not reconnected. */
async function startRecovering(): Promise<{
  harness: ServerHarness;
  client: Awaited<ReturnType<ServerHarness["connectClient"]>>;
}> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const client = await harness.connectClient(false);
  const silentClient = await harness.connectClient(false);
  expectHeld(await client.driver.claim(makeClaim("a")));
  expectHeld(await silentClient.driver.claim(makeClaim("b")));
  silentClient.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(5_000);
  expect(harness.inspect().isRecovering).toBe(true);
  return { harness, client };
}

test("a reclaimed key is busy; for any other key it is unknown whether it is free", async () => {
  const { harness, client } = await startRecovering();
  const tryClaim = (key: string | readonly string[]) => client.driver.claim(makeClaim(key, { wait: false }));
  expect(await tryClaim("a")).toEqual({ state: "none" });
  expect(await tryClaim(["a", "free"])).toEqual({ state: "none" });
  const paused = { reason: "recovery", remainingMs: expect.closeTo(25_000, -3) };
  for (const key of ["b", "free", ["b", "free"]]) expect(await tryClaim(key)).toEqual({ state: "none", paused });
  // a key with a waiter only has no holder yet
  const waiter = makeClaim("free");
  expect(await client.driver.claim(waiter)).toMatchObject({ state: "waiting", paused });
  expect(await tryClaim("free")).toEqual({ state: "none", paused });
  expect((await client.driver.renew([waiter]))[0]).toMatchObject({ state: "waiting", paused });
  expect(harness.inspect().records.size).toBe(2);
  await harness.clock.advance(26_000);
  expect(harness.inspect().isRecovering).toBe(false);
  expectHeld((await client.driver.renew([waiter]))[0]);
  const waitingAnswer = await client.driver.claim(makeClaim("free"));
  expect(waitingAnswer).toMatchObject({ state: "waiting" });
  expect(waitingAnswer).not.toHaveProperty("paused");
  expect(await tryClaim("free")).toEqual({ state: "none" });
  expectHeld(await client.driver.claim(makeClaim("b", { wait: false })));
});

test("reclaimed permits count, and whether further permits are free is unknown", async () => {
  const { client } = await startRecovering();
  const tryClaim = (permits: number, limit: number) =>
    client.driver.claim(makeClaim([{ key: "s", permits, limit }], { wait: false }));
  expect(await tryClaim(1, 2)).toMatchObject({ state: "none", paused: { reason: "recovery" } });
  const reader = [{ key: "a", permits: 1, limit: 3 }];
  expect(await client.driver.claim(makeClaim(reader, { wait: false }))).toEqual({ state: "none" });
});

test("serve() logs that nothing new is granted, why and for how long, and when that is over", async () => {
  const first = await startServer({ listen: "holdfast://127.0.0.1:0" });
  expect(first.logged).toEqual([]);
  const stateless = await startServer({ state: "none" });
  expect(stateless.logged).toEqual([
    'no state is kept from the previous run: granting nothing new for up to 60 s {"level":"warn"}',
  ]);

  const { harness } = await startRecovering();
  expect(harness.logLines.filter((line) => /grant/.test(line))).toEqual([
    expect.stringMatching(/^the previous run of the server did not stop cleanly: granting nothing new for up to 30 s/),
  ]);
  await harness.clock.advance(26_000);
  expect(harness.logLines.at(-1)).toMatch(/^recovery is over: new locks are granted/);
});
