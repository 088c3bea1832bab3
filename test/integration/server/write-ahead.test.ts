// Before an answer says "held", whatever must outlive a crash is on disk: for every call that gives the answer.

import { expect, test } from "vitest";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { MemoryStorage } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test.each([
  ["long claim is being journaled", 120_000],
  ["detach is being journaled", 20_000],
])("a renewal that arrives while its own %s is answered when that is done", async (_, ttlMs) => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const client = await harness.connectClient();
  const claim = makeClaim("k", { ttlMs });
  const detaches = ttlMs < 60_000;
  if (detaches) expectHeld(await client.driver.claim(claim));
  let open = (): void => undefined;
  disk.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  const first = detaches ? client.driver.detach?.([claim]) : client.driver.claim(claim);
  await flushEventLoop();
  expect(disk.writes.at(-1)).toBe("append");
  let isAnswered = false;
  const renewal = client.driver.renew([claim]).then((answers) => {
    isAnswered = true;
    return answers;
  });
  await flushEventLoop();
  expect({ answered: isAnswered, journal: disk.journal }).toEqual({ answered: false, journal: "" });
  open();
  expect((await renewal)[0]).toMatchObject({ state: "held" });
  expect(disk.journal).toContain(claim.id);
  await first;
});

test("calls that follow a claim which waits for the disk do not treat it as gone: a renewal is unknown, a release counts", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const [client, other] = [await harness.connectClient(), await harness.connectClient()];
  const claim = makeClaim("k", { ttlMs: 50_000 });
  let open = (): void => undefined;
  disk.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  const first = client.driver.claim(claim);
  await flushEventLoop();
  expect(await other.driver.renew([claim])).toEqual([undefined]);
  await other.driver.release(toReleases(claim));
  open();
  expect(await first).toMatchObject({ state: "none" });
  expect((await other.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
});
