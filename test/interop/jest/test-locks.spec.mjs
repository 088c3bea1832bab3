// Run by Jest, not by Vitest: test/bundlers/jest.test.ts starts it.

import { createTestLocks } from "holdfast/testing";

const { jest } = import.meta;

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

test("a manual clock needs no timers of Jest", async () => {
  const locks = createTestLocks();
  const other = locks.busy("a");
  const waiting = locks.acquire("a");
  await locks.advance("1m");
  other.free();
  const lock = await waiting;
  const timedOut = expect(locks.acquire("a", { wait: "1s" })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await locks.advance("1s");
  await timedOut;
  locks.storeDown();
  await locks.advance("31s");
  expect(lock.signal.aborted).toBe(true);
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "expired" });
  locks.storeUp();
  expect(await lock.release()).toBe(false);
  expect(locks.heldKeys()).toEqual([]);
  await locks.close();
});

test("the clock of the timers follows those of Jest", async () => {
  const locks = createTestLocks({ clock: "timers" });
  const lock = await locks.acquire("a");
  await jest.advanceTimersByTimeAsync(60_000);
  lock.throwIfLost();
  locks.storeDown();
  await jest.advanceTimersByTimeAsync(31_000);
  expect(lock.signal.aborted).toBe(true);
  locks.storeUp();
  const next = await locks.acquire("a");
  locks.lose("a");
  expect(next.signal.aborted).toBe(true);
  await expect(locks.list()).resolves.toEqual([]);
  await locks.close();
});
