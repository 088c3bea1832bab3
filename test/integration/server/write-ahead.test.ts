// Before an answer says "held", what must outlive a crash stands on the disk: for whichever call the answer is.

import { expect, test } from "vitest";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { MemoryStorage } from "../../support/server-harness.ts";
import { flushEventLoop, ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test.each([
  ["long claim is being journaled", 120_000],
  ["detach is being journaled", 20_000],
])("a renewal that comes while its own %s is answered when that is done", async (_, ttlMs) => {
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
  let answered = false;
  const renewal = client.driver.renew([claim]).then((answers) => {
    answered = true;
    return answers;
  });
  await flushEventLoop();
  expect({ answered, journal: disk.journal }).toEqual({ answered: false, journal: "" });
  open();
  expect((await renewal)[0]).toMatchObject({ state: "held" });
  expect(disk.journal).toContain(claim.id);
  await first;
});

test("calls that come behind a claim that waits for the disk do not take it for gone: a renewal is not known, a release holds", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const [one, other] = [await harness.connectClient(), await harness.connectClient()];
  const claim = makeClaim("k", { ttlMs: 50_000 });
  let open = (): void => undefined;
  disk.writeGate = new Promise((resolve) => {
    open = resolve;
  });
  const first = one.driver.claim(claim);
  await flushEventLoop();
  expect(await other.driver.renew([claim])).toEqual([undefined]);
  await other.driver.release([claim]);
  open();
  expect(await first).toMatchObject({ state: "none" });
  expect(await other.driver.list({ prefix: "" }, 10)).toEqual([]);
});
