// Test locks under the fake timers of test runners. Jest replaces queueMicrotask() too, Vitest does not by default.

import assert from "node:assert/strict";
import { mock } from "node:test";
import { afterEach, beforeEach, describe, test, vi } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import type { LockLostError } from "../../../src/errors.ts";
import { createTestLocks } from "../../../src/testing/index.ts";

const FAKED = {
  "as Vitest does": undefined,
  "and queueMicrotask(), as Jest does": [
    "setTimeout",
    "clearTimeout",
    "setInterval",
    "clearInterval",
    "setImmediate",
    "clearImmediate",
    "Date",
    "performance",
    "hrtime",
    "queueMicrotask",
  ] as const,
};

describe.each(Object.entries(FAKED))("fake timers %s", (_how, toFake) => {
  beforeEach(() => {
    vi.useFakeTimers(toFake === undefined ? {} : { toFake: [...toFake] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("a manual clock needs none of them", async () => {
    await using locks = createTestLocks();
    const other = locks.busy("a");
    const waiting = locks.acquire("a");
    await locks.advance("1m");
    other.free();
    const lock = await waiting;
    const timedOut = assert.rejects(locks.acquire("a", { wait: "1s" }), { code: "LOCK_TIMEOUT" });
    await locks.advance("1s");
    await timedOut;
    locks.storeDown();
    await locks.advance("31s");
    assert.equal(lock.signal.aborted, true);
    locks.storeUp();
    assert.equal(await lock.release(), false);
    const again = await locks.acquire("a");
    locks.lose("a");
    assert.equal(again.signal.aborted, true);
    assert.equal((await locks.list()).length, 0);
  });

  test("the clock of the timers follows them", async () => {
    await using locks = createTestLocks({ clock: "timers" });
    const order: string[] = [];
    const lock = await locks.acquire("a");
    lock.signal.addEventListener("abort", () => order.push("lost"));
    await vi.advanceTimersByTimeAsync(60_000);
    lock.throwIfLost();
    locks.storeDown();
    // renewed at the latest 10 s ago: lost from 17 s to 27 s from now
    setTimeout(() => order.push("timer at 16 s"), 16_000);
    setTimeout(() => order.push("timer at 28 s"), 28_000);
    await vi.advanceTimersByTimeAsync(30_000);
    assert.deepEqual(order, ["timer at 16 s", "lost", "timer at 28 s"]);
    assert.equal((lock.signal.reason as LockLostError).reason, "expired");
    locks.storeUp();
    locks.busy("b");
    const timedOut = assert.rejects(locks.acquire("b", { wait: "5s" }), { code: "LOCK_TIMEOUT" });
    await vi.advanceTimersByTimeAsync(5_000);
    await timedOut;
    assert.equal(await lock.release(), false);
  });

  test("the store in memory follows them, since they replace performance.now()", async () => {
    await using locks = createLocks(memory());
    const lock = await locks.acquire("a", { maxHold: "10m" });
    const timedOut = assert.rejects(locks.acquire("a", { wait: "5s" }), { code: "LOCK_TIMEOUT" });
    await vi.advanceTimersByTimeAsync(5_000);
    await timedOut;
    lock.throwIfLost();
    await vi.advanceTimersByTimeAsync(600_000);
    assert.equal((lock.signal.reason as LockLostError).reason, "maxHold");
  });

  test("the date of a manual clock is that of the process at the start, and so are its tokens", async () => {
    vi.setSystemTime(Date.UTC(2030, 0, 1));
    await using locks = createTestLocks();
    const lock = await locks.acquire("a");
    assert.equal(lock.token, BigInt(Date.UTC(2030, 0, 1)) * 1_000n);
  });

  test("they may be installed after the locks", async () => {
    vi.useRealTimers();
    await using locks = createTestLocks({ clock: "timers" });
    const lock = await locks.acquire("a");
    await lock.release();
    vi.useFakeTimers(toFake === undefined ? {} : { toFake: [...toFake] });
    const next = await locks.acquire("a", { maxHold: "1m" });
    await vi.advanceTimersByTimeAsync(60_000);
    assert.equal((next.signal.reason as LockLostError).reason, "maxHold");
  });
});

test("the clock of the timers follows those of Node.js, which do not replace performance.now()", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.now() });
  try {
    await using locks = createTestLocks({ clock: "timers" });
    locks.busy("a");
    const timedOut = assert.rejects(locks.acquire("a", { wait: "5s" }), { code: "LOCK_TIMEOUT" });
    await locks.tryAcquire("b"); // the request above has been sent
    mock.timers.tick(5_000);
    await timedOut;
  } finally {
    mock.timers.reset();
  }
});

test("hand-offs go on while setImmediate() is replaced and performance.now() is not", { timeout: 5_000 }, async () => {
  mock.timers.enable({ apis: ["setImmediate", "setTimeout", "Date"], now: Date.now() });
  try {
    const locks = createLocks(memory());
    const computeOften = async (): Promise<void> => {
      for (let round = 0; round < 20; round++) {
        await locks.using("k", () => {
          const endsAt = performance.now() + 0.5;
          while (performance.now() < endsAt);
        });
      }
    };
    await Promise.all([computeOften(), computeOften(), computeOften()]);
    await locks.close();
  } finally {
    mock.timers.reset();
  }
});
