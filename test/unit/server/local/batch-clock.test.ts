// All calls of a batch share one reading of the clocks, which ends with the batch.

import { expect, test } from "vitest";
import { BatchClock } from "../../../../src/server/local/batch-clock.ts";
import type { LocalBackend } from "../../../../src/server/local/local-backend.ts";
import type { Session } from "../../../../src/server/session/session.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { cleanUpAfterEach, makeClaim } from "../../../support/server-fixture.ts";
import { ServerHarness } from "../../../support/server-harness.ts";

cleanUpAfterEach();

test("time stands still from begin() to end(), and advances after it", () => {
  const clock = new FakeClock();
  const batchClock = new BatchClock(clock);
  const before = batchClock.read();
  clock.jump(10);
  expect(batchClock.read().now).toBe(before.now + 10);
  batchClock.beginBatch();
  const first = batchClock.read();
  clock.jump(10);
  expect(batchClock.read()).toEqual(first);
  batchClock.endBatch();
  expect(batchClock.read()).toEqual({ now: first.now + 10, micros: first.micros + 10_000 });
});

test("a batch begins with a new reading, even if the previous one was not ended", () => {
  const clock = new FakeClock();
  const batchClock = new BatchClock(clock);
  batchClock.beginBatch();
  const { now } = batchClock.read();
  clock.jump(10);
  batchClock.beginBatch();
  expect(batchClock.read().now).toBe(now + 10);
});

test("a call outside a batch reads the clock afresh", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const { driver } = await harness.connectClient();
  const ownClaim = makeClaim("mine");
  await driver.claim(ownClaim);
  const backend = harness.inspect().backend as LocalBackend;
  const { table } = backend;
  const session = table.records.get(ownClaim.id)?.owner as Session;
  harness.clock.jump(5_000);
  const otherClaim = makeClaim("other", { ttlMs: 10_000 });
  void backend.claim(session, otherClaim);
  expect(table.records.get(otherClaim.id)?.expiresAt).toBe(harness.clock.now() + 10_000);
  expect(table.records.get(otherClaim.id)?.token).toBe(harness.clock.wall() * 1_000);
});
