// Locks for the tests of users: time and faults come from the test, and nothing else changes.

import assert from "node:assert/strict";
import { afterEach, describe, expect, test, vi } from "vitest";
import { closeOnSignal } from "../../../src/client/close-on-signal.ts";
import type { LockLostError, LostReason } from "../../../src/errors.ts";
import type { TestLocks } from "../../../src/testing/index.ts";
import { createTestLocks } from "../../../src/testing/index.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

const opened: TestLocks[] = [];

function openLocks(options?: Parameters<typeof createTestLocks>[0]): TestLocks {
  const locks = createTestLocks(options);
  opened.push(locks);
  return locks;
}

afterEach(async () => {
  for (const locks of opened.splice(0)) await locks.close();
});

/** Fulfilled, rejected or pending, after all promise reactions. */
async function stateOf(locks: TestLocks, promise: Promise<unknown>): Promise<string> {
  let state = "pending";
  void promise.then(
    () => {
      state = "fulfilled";
    },
    () => {
      state = "rejected";
    },
  );
  await locks.advance(0);
  return state;
}

describe("advance()", () => {
  test("a lock that is held for half an hour is renewed all the time", async () => {
    const locks = openLocks();
    const lock = await locks.acquire("key");
    await locks.advance("30m");
    lock.throwIfLost();
    assert.deepEqual(locks.heldKeys(), ["key"]);
    assert.equal(await lock.release(), true);
    assert.deepEqual(locks.heldKeys(), []);
  });

  test("without advance() no time passes: a lease of 100 ms without renewals outlives real time", async () => {
    const locks = openLocks({ renew: false, ttl: 100 });
    const lock = await locks.acquire("key");
    const before = lock.remainingMs;
    const end = performance.now() + 5;
    while (performance.now() < end);
    assert.equal(lock.remainingMs, before);
    await locks.advance(100);
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST", reason: "expired" });
    assert.deepEqual(locks.heldKeys(), []);
  });

  test("a wait ends at its time, not before, and its error names the holder", async () => {
    const locks = openLocks();
    const other = locks.busy("key");
    const waiting = locks.acquire("key", { wait: "5s" });
    assert.equal(await stateOf(locks, waiting), "pending");
    await locks.advance(4_999);
    assert.equal(await stateOf(locks, waiting), "pending");
    await locks.advance(1);
    await assert.rejects(waiting, { code: "LOCK_TIMEOUT", message: /waited 5 s for "key": held by another process/ });
    other.free();
  });

  test("maxHold ends the lock at its time", async () => {
    const locks = openLocks({ maxHold: "10m" });
    const lock = await locks.acquire("key");
    await locks.advance("9m");
    assert.equal(lock.signal.aborted, false);
    await locks.advance("1m");
    assert.equal((lock.signal.reason as LockLostError).reason, "maxHold");
  });
});

describe("lose()", () => {
  test("the signal is aborted when it returns, and using() rejects with LockLostError", async () => {
    const locks = openLocks();
    const events: unknown[] = [];
    locks.on("lost", ({ keys, reason }) => events.push([keys, reason]));
    const work = locks.using("key", async (lock) => {
      locks.lose("key");
      assert.equal(lock.signal.aborted, true);
      assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST", reason: "expired" });
      assert.equal(await lock.release(), false);
    });
    await assert.rejects(work, { code: "LOCK_LOST", reason: "expired" });
    assert.deepEqual(events, [[["key"], "expired"]]);
    assert.deepEqual(locks.heldKeys(), []);
  });

  test.each<LostReason>(["expired", "released", "revoked", "maxHold", "unknown"])("with reason %s", async (reason) => {
    const locks = openLocks();
    const lock = await locks.acquire("key");
    locks.lose("key", reason);
    assert.equal((lock.signal.reason as LockLostError).reason, reason);
  });

  test("the key is free for another process, and for the next waiter of these locks", async () => {
    const locks = openLocks();
    await locks.acquire("key");
    locks.lose("key");
    const other = locks.busy("key");
    const waiting = locks.acquire("key");
    assert.equal(await stateOf(locks, waiting), "pending");
    other.free();
    const [lock, token] = [await waiting, (await waiting).token];
    const next = locks.acquire("key");
    locks.lose("key");
    assert.ok((await next).token > token);
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST" });
  });

  test("all readers lose a key, and a lock on several keys loses them all", async () => {
    const locks = openLocks();
    const readers = [await locks.rw("a").read.acquire(), await locks.rw("a").read.acquire()];
    locks.lose("a");
    assert.deepEqual(
      readers.map(({ signal }) => signal.aborted),
      [true, true],
    );
    const both = await locks.all("a", "b").acquire();
    assert.deepEqual(locks.heldKeys(), ["a", "b"]);
    locks.lose("b");
    assert.equal(both.signal.aborted, true);
    assert.deepEqual(locks.heldKeys(), []);
  });

  test("a waiting semaphore holder gets the permit that was lost", async () => {
    const locks = openLocks();
    await locks.semaphore("key", 1).acquire();
    const next = locks.semaphore("key", 1).acquire();
    assert.equal(await stateOf(locks, next), "pending");
    locks.lose("key");
    assert.equal(await (await next).release(), true);
  });
});

describe("busy()", () => {
  test("tryAcquire() returns null until free(), and a waiter gets the key then", async () => {
    const locks = openLocks();
    const other = locks.busy("key");
    assert.equal(await locks.tryAcquire("key"), null);
    const waiting = locks.acquire("key");
    await locks.advance("10m");
    assert.equal(await stateOf(locks, waiting), "pending");
    assert.deepEqual(locks.heldKeys(), []);
    other.free();
    other.free();
    assert.equal(await (await waiting).release(), true);
  });

  test("it is a resource of `using`", async () => {
    const locks = openLocks();
    {
      using _other = locks.busy("key");
      assert.equal(await locks.tryAcquire("key"), null);
    }
    assert.ok(await locks.tryAcquire("key"));
  });

  test("list() shows both holders", async () => {
    const locks = openLocks({ prefix: "app:" });
    locks.busy("a");
    await locks.acquire("b");
    const views = await locks.list();
    assert.deepEqual(
      views.map(({ locks: [{ key }], label }) => [key, label]),
      [
        ["a", "another process"],
        ["b", "test"],
      ],
    );
    assert.deepEqual(locks.heldKeys(), ["b"]);
  });
});

describe("storeDown()", () => {
  test("a holder is in jeopardy, loses the lock at nine tenths of its lease, and storeUp() restores others", async () => {
    const locks = openLocks();
    const events: string[] = [];
    for (const event of ["storeDown", "jeopardy", "restored", "storeUp", "lost"] as const)
      locks.on(event, () => events.push(event));
    const lock = await locks.acquire("key");
    locks.storeDown();
    await locks.advance("20s");
    lock.throwIfLost();
    locks.storeUp();
    await locks.advance("1s");
    locks.storeDown();
    await locks.advance("31s");
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST", reason: "expired" });
    assert.equal(lock.signal.aborted, true);
    assert.deepEqual(
      events.filter((event) => event !== "storeDown" && event !== "storeUp"),
      ["jeopardy", "restored", "jeopardy", "lost"],
    );
    assert.deepEqual(locks.heldKeys(), []);
  });

  test("requests fail when their wait is over, and succeed if the store is back before", async () => {
    const locks = openLocks();
    locks.storeDown();
    await assert.rejects(locks.tryAcquire("key"), { code: "LOCK_STORE_FAILED" });
    const late = locks.acquire("key", { wait: "2s" });
    const expectation = assert.rejects(late, { code: "LOCK_STORE_FAILED" });
    await locks.advance("2s");
    await expectation;
    const patient = locks.acquire("key", { wait: "2s" });
    await locks.advance("1s");
    locks.storeUp();
    assert.equal(await (await patient).release(), true);
  });

  test("what happens meanwhile is noticed after storeUp()", async () => {
    const locks = openLocks();
    const other = locks.busy("key");
    const waiting = locks.acquire("key");
    await locks.advance(0);
    locks.storeDown();
    other.free();
    assert.equal(await stateOf(locks, waiting), "pending");
    locks.storeUp();
    assert.equal(await (await waiting).release(), true);
  });

  test("lose(), busy() and heldKeys() work, and close() does not hang", async () => {
    const locks = openLocks();
    const lock = await locks.acquire("a");
    locks.storeDown();
    assert.deepEqual(locks.heldKeys(), ["a"]);
    locks.lose("a");
    assert.equal(lock.signal.aborted, true);
    locks.busy("a");
    await locks.close();
  });
});

test("closeOnSignal() brings the store up, as close() does", async () => {
  const kill = vi.spyOn(process, "kill").mockReturnValue(true);
  const before = process.listeners("SIGTERM");
  const locks = openLocks();
  await locks.acquire("key");
  locks.storeDown();
  closeOnSignal(locks);
  const [onSignal] = process.listeners("SIGTERM").filter((listener) => !before.includes(listener));
  onSignal?.("SIGTERM");
  await vi.waitFor(() => assert.deepEqual(kill.mock.calls, [[process.pid, "SIGTERM"]]), 5_000);
  assert.deepEqual(locks.heldKeys(), []);
  kill.mockRestore();
});

test("what a client loads when it needs it is there when advance(0) settles", async () => {
  // in modules that nothing has loaded yet
  vi.resetModules();
  const copy = await import("../../../src/testing/index.ts");
  const locks = copy.createTestLocks({ logger: { debug: vi.fn(), info: vi.fn(), warn: vi.fn(), error: vi.fn() } });
  let hasTerm = false;
  const leading = (async () => {
    for await (const { signal } of locks.leader("leader")) {
      hasTerm = true;
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    }
  })();
  await locks.advance(0);
  assert.equal(hasTerm, true);
  const lock = await locks.acquire("key");
  assert.equal(await stateOf(locks, lock.detach()), "fulfilled");
  assert.equal(await stateOf(locks, locks.list()), "fulfilled");
  await locks.close();
  await leading;
});

test("another copy of the library, such as the one that the program under test imports, knows the errors and the lock", async () => {
  // as the entries of the package, each of which has its own copy
  vi.resetModules();
  const { currentLock, withoutCurrentLock } = await import("../../../src/wrapping/current-lock.ts");
  const errors = await import("../../../src/errors.ts");
  const locks = openLocks();
  assert.deepEqual(await locks.wrap("wrapped", () => currentLock().keys)(), ["wrapped"]);
  assert.equal(await locks.using("left", () => withoutCurrentLock(() => locks.holds("left"))), false);
  locks.busy("key");
  const timeout: unknown = await locks.acquire("key", { wait: 0 }).catch((error: unknown) => error);
  const lock = await locks.acquire("lost");
  locks.lose("lost");
  const loss = lock.signal.reason as unknown;
  assert.ok(timeout instanceof errors.LockTimeoutError && timeout instanceof errors.LockError);
  assert.ok(loss instanceof errors.LockLostError && loss instanceof errors.LockError);
  assert.ok(!(loss instanceof errors.LockTimeoutError) && !(timeout instanceof errors.StoreError));
});

test("two of them share nothing", async () => {
  const [one, two] = [openLocks(), openLocks()];
  assert.ok(await one.tryAcquire("key"));
  assert.ok(await two.tryAcquire("key"));
});

test("await using closes them, and later requests are refused", async () => {
  let escaped: TestLocks;
  {
    await using locks = openLocks();
    escaped = locks;
    await locks.acquire("key");
    locks.storeDown();
  }
  assert.deepEqual(escaped.heldKeys(), []);
  await assert.rejects(escaped.acquire("key"), { code: "LOCK_CLOSED" });
});

describe("wrong arguments are refused", () => {
  const untyped = createTestLocks as unknown as (options: unknown) => TestLocks;
  test.each([
    [null, /options of createTestLocks must be an object/],
    [{ clock: "fake" }, /clock must be "manual" or "timers", not "fake"/],
    [{ ttl: "1x" }, /ttl must be/],
    [{ tll: 5 }, /createTestLocks has no option "tll"/],
  ])("%j", (options, message) => {
    expect(() => untyped(options)).toThrow(message);
  });

  test("of the methods", async () => {
    const locks = openLocks();
    const loose = locks as unknown as Record<string, (...args: unknown[]) => unknown>;
    await assert.rejects(async () => loose.advance!("soon"), /by must be a whole number of milliseconds/);
    assert.throws(() => locks.lose("key"), { name: "TypeError", message: /key must be held: no lock on "key"/ });
    assert.throws(() => locks.lose(""), /key must not be empty/);
    await locks.acquire("key");
    assert.throws(() => loose.lose!("key", "stolen"), /reason must be one of "expired", .*, not "stolen"/);
    assert.throws(() => locks.busy("key"), { name: "TypeError", message: /key must be free: a lock on "key" is held/ });
    assert.throws(() => locks.busy(""), /key must not be empty/);
    await assert.rejects(openLocks({ clock: "timers" }).advance(1), /advance\(\) needs clock "manual"/);
  });
});

test("tryAcquire() is not null while the store is down, also beside a request that waits for the same key", async () => {
  const locks = createTestLocks();
  locks.storeDown();
  const waiting = locks.acquire("k");
  await locks.advance("100ms");
  for (let count = 0; count < 6; count++) {
    await expect(locks.tryAcquire("k")).rejects.toMatchObject({ code: "LOCK_STORE_FAILED", keys: ["k"] });
    await locks.advance("1s");
  }
  locks.storeUp();
  await locks.advance("5s");
  const lock = await waiting;
  expect(await locks.tryAcquire("k")).toBeNull();
  await lock.release();
  await locks.close();
});
