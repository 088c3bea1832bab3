// The guide says that fake timers work with "memory:", without any setting.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test, vi } from "vitest";
import { connect } from "../../../src/client/connect.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const HOUR_MS = 3_600_000;

test("a wait ends when fake time advances", async () => {
  const locks = await connect("memory:");
  const lock = await locks.acquire("k");
  const waits = assert.rejects(locks.acquire("k", { wait: HOUR_MS }), { code: "LOCK_TIMEOUT" });
  await vi.advanceTimersByTimeAsync(HOUR_MS + 1_000);
  await waits;
  lock.throwIfLost();
  assert.equal(await lock.release(), true);
  await locks.close();
});

test("a lease without renewal expires, and maxHold passes", async () => {
  const locks = await connect("memory:", { renew: false, ttl: HOUR_MS });
  const lock = await locks.acquire("k");
  await vi.advanceTimersByTimeAsync(HOUR_MS);
  assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST", reason: "expired" });
  await locks.close();

  const bounded = await connect("memory:", { maxHold: HOUR_MS });
  const held = await bounded.acquire("k");
  const { signal } = held;
  await vi.advanceTimersByTimeAsync(HOUR_MS - 1_000);
  assert.equal(signal.aborted, false);
  await vi.advanceTimersByTimeAsync(2_000);
  assert.equal((signal.reason as { reason?: string }).reason, "maxHold");
  await bounded.close();
});
