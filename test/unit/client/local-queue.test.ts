import assert from "node:assert/strict";
import { setImmediate as waitForTurn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { LocalHold } from "../../../src/client/local-hold.ts";
import type { Lock, LockHandle } from "../../../src/client/lock.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { heapUsed } from "../../support/heap-usage.ts";

// Queries of a local hold change nothing: only observe() applies what the clocks show, and what users call observes first.

interface Fixture {
  readonly clock: FakeClock;
  readonly lock: Lock;
  readonly localHold: LocalHold;
  /** The events of the client, in order. */
  readonly events: string[];
}

/** A lock of 10 s without renewals, so that no timer reports anything. */
async function createFixture(): Promise<Fixture> {
  const clock = new FakeClock();
  const locks = createLocks(memory({ store: memoryStore(clock) }), { clock, ttl: "10s", renew: false });
  const events: string[] = [];
  for (const name of ["lost", "clockStep", "jeopardy"] as const) locks.on(name, () => events.push(name));
  const lock = await locks.acquire("k");
  return { clock, lock, localHold: (lock as LockHandle).localHolds[0], events };
}

test("isHeld() and remainingMs() answer for a time and report no loss; observe() reports it", async () => {
  const { clock, localHold, events } = await createFixture();
  const grantedAt = clock.now();
  await clock.advance(9_000);
  expect([localHold.isHeld(grantedAt + 8_999), localHold.remainingMs(grantedAt + 8_999)]).toEqual([true, 1]);
  expect([localHold.isHeld(clock.now()), localHold.remainingMs(clock.now())]).toEqual([false, 0]);
  expect([localHold.lostReason, events]).toEqual([null, []]);
  expect(localHold.observe()).toBe(clock.now());
  expect([localHold.lostReason, events]).toEqual(["expired", ["lost"]]);
});

test("a suspension changes nothing until observe() has compared the clocks", async () => {
  const { clock, localHold, events } = await createFixture();
  clock.suspend(60_000);
  expect([localHold.isHeld(clock.now()), events]).toEqual([true, []]);
  localHold.observe();
  expect(localHold.isHeld(clock.now())).toBe(false);
  expect(events).toContain("clockStep");
});

for (const [name, call] of [
  ["signal", (lock) => lock.signal],
  ["remainingMs", (lock) => lock.remainingMs],
  ["release()", (lock) => lock.release()],
] as const satisfies readonly [string, (lock: Lock) => unknown][]) {
  test(`${name} observes the clocks`, async () => {
    const { clock, lock, events } = await createFixture();
    clock.suspend(60_000);
    await call(lock);
    expect(events).toContain("clockStep");
  });
}

test("throwIfLost() observes the clocks, and throws after a suspension longer than the lease", async () => {
  const { clock, lock, events } = await createFixture();
  clock.suspend(60_000);
  expect(() => lock.throwIfLost()).toThrow(/lost the lock/);
  expect(events).toContain("clockStep");
});

describe("callers of one process", () => {
  /** Counts the claims that reach the store, which answers in a later turn of the event loop like one behind a network. */
  function countClaims(driver: Driver): { readonly driver: Driver; readonly count: () => number } {
    let count = 0;
    const claim: Driver["claim"] = async (claimed) => {
      count++;
      await waitForTurn();
      return driver.claim(claimed);
    };
    return { driver: Object.assign(Object.create(driver) as Driver, { claim }), count: () => count };
  }

  const callers = {
    "acquire() and release()": async (locks: Locks) => {
      const lock = await locks.acquire("k");
      await lock.release();
    },
    "using()": (locks: Locks) => locks.using("k", () => undefined),
  };
  for (const [name, call] of Object.entries(callers)) {
    test(`two that work synchronously pass the lock to each other without the store, by ${name}`, async () => {
      const { driver, count } = countClaims(memory());
      const locks = createLocks(driver);
      const repeatCall = async (): Promise<void> => {
        for (let round = 0; round < 100; round++) await call(locks);
      };
      await Promise.all([repeatCall(), repeatCall()]);
      // the first ranges are short
      expect(count()).toBeLessThan(12);
      await locks.close();
    });
  }

  for (const [what, count, options, outerKey] of [
    ["that pass the lock to each other", 3, {}, null],
    ["that pass the lock to each other inside a lock of their own", 3, {}, "outer"],
    ["of a cached lock", 1, { cache: "10s" }, null],
  ] as const) {
    test(`callers ${what} and only compute let the event loop turn, so that recalls, answers and timers are seen`, async () => {
      const locks = createLocks(memory(), options);
      let [turns, sections] = [0, 0];
      const countTurns = (): void => {
        turns++;
        counting = setImmediate(countTurns);
      };
      let counting = setImmediate(countTurns);
      const computeOften = async (): Promise<void> => {
        while (sections < 4_000) {
          await locks.using("k", () => {
            const endsAt = performance.now() + 0.05;
            while (performance.now() < endsAt);
          });
          sections++;
        }
      };
      const callers = Array.from({ length: count }, (_, index) =>
        outerKey === null ? computeOften() : locks.using(`${outerKey} ${index}`, computeOften),
      );
      await Promise.all(callers);
      clearImmediate(counting);
      // 200 ms of work or more, in chains of 1 ms
      expect(turns).toBeGreaterThan(50);
      await locks.close();
    });
  }

  test("one whose turn ends while others wait need not wait for the store", async () => {
    const driver = memory();
    const release: Driver["release"] = () => new Promise(() => undefined);
    const locks = createLocks(Object.assign(Object.create(driver) as Driver, { release }));
    const first = await locks.acquire("k");
    void locks.acquire("k").catch(() => undefined);
    // its range has one token
    expect(await first.release()).toBe(true);
  });
});

/** A listener may use the client within the same call. */
describe("a listener that uses the client immediately", () => {
  test("aborts the request whose grant it receives: the lock is granted, and later requests still are", async () => {
    const locks = createLocks(memory());
    const holder = await locks.acquire("k");
    const abort = new AbortController();
    const first = locks.acquire("k", { signal: abort.signal });
    const waits = [locks.acquire("k"), locks.acquire("k")];
    locks.on("acquired", () => abort.abort());
    await holder.release();
    await (await first).release();
    for (const other of waits) await (await other).release();
    assert.deepEqual(await locks.list(), []);
    await locks.close();
  });

  test("aborts the only request that waits for the released lock: release() still settles", async () => {
    const locks = createLocks(memory());
    const holder = await locks.acquire("k");
    const abort = new AbortController();
    const waits = locks.acquire("k", { signal: abort.signal });
    const listening = locks.on("released", () => abort.abort(new RangeError("enough")));
    assert.equal(await holder.release(), true);
    await assert.rejects(waits, RangeError);
    listening[Symbol.dispose]();
    await (await locks.acquire("k")).release();
    assert.deepEqual(await locks.list(), []);
    await locks.close();
  });

  test("requests a lock that releaseAll() takes from it: it waits its turn, and nothing is left", async () => {
    const locks = createLocks(memory());
    const holder = await locks.acquire("k");
    const abort = new AbortController();
    const waits = assert.rejects(locks.acquire("k", { signal: abort.signal }), RangeError);
    let nextLock: Promise<Lock> | undefined;
    holder.signal.addEventListener("abort", () => {
      abort.abort(new RangeError("enough"));
      nextLock = locks.acquire("k");
    });
    await locks.releaseAll();
    await waits;
    const next = locks.acquire("k");
    await (await nextLock)?.release();
    await (await next).release();
    assert.deepEqual(await locks.list(), []);
    await locks.close();
  });

  for (const [description, listens] of [
    ["the event", (locks, _lock, listener) => void locks.on("lost", listener)],
    ["the signal", (_locks, lock, listener) => void lock.signal.addEventListener("abort", listener)],
  ] as [string, (locks: ReturnType<typeof createLocks>, lock: Lock, told: () => void) => void][]) {
    test(`requests the lock it has lost, notified by ${description}: it has one claim, and the key is free afterwards`, async () => {
      const clock = new FakeClock();
      const driver = memory({ store: memoryStore(clock) });
      const locks = createLocks(driver, { clock, ttl: "9s" });
      const lostLock = await locks.acquire("k");
      let nextLock: Promise<Lock> | undefined;
      listens(locks, lostLock, () => {
        nextLock = locks.acquire("k");
      });
      const [view] = await locks.list();
      const token = view?.token ?? 0n;
      await driver.revoke?.([{ key: "k", token, now: true }]);
      await clock.advance(3_000);
      assert.equal(lostLock.signal.aborted, true);
      assert.equal((await locks.list()).length, 1, "one claim");
      await lostLock.release();
      await (await nextLock)?.release();
      assert.deepEqual(await locks.list(), []);
      await locks.close();
    });
  }
});

test("one signal ends many waits without a warning of leaking listeners", async () => {
  const locks = createLocks(memory());
  const warnings: string[] = [];
  const warned = ({ name }: Error): number => warnings.push(name);
  process.on("warning", warned);
  const holder = await locks.acquire("k");
  const controller = new AbortController();
  const waits = Array.from({ length: 100 }, () => locks.acquire("k", { signal: controller.signal }));
  const settlement = Promise.allSettled(waits);
  await new Promise((resolve) => setImmediate(resolve)); // warnings are emitted in a later turn
  controller.abort(new Error("enough"));
  for (const { status } of await settlement) assert.equal(status, "rejected");
  process.removeListener("warning", warned);
  assert.deepEqual(warnings, []);
  await holder.release();
  await locks.close();
});

test("a signal that refuses listeners fails its own request, and blocks no other", async () => {
  const locks = createLocks(memory());
  await (await locks.acquire("warm")).release();
  const signal = Object.create(new AbortController().signal, {
    throwIfAborted: { value: () => undefined },
    addEventListener: {
      value() {
        throw new RangeError("deaf");
      },
    },
  }) as AbortSignal;
  await assert.rejects(locks.acquire("k", { signal, wait: 10 }), RangeError);
  const next = await locks.tryAcquire("k");
  assert.equal(await next?.release(), true);
  await locks.close();
});

test("a call that joins a lock and reads its signal leaves nothing behind; the loss reaches every such call", async () => {
  const store = memoryStore();
  const driver = memory({ store });
  const locks = createLocks(driver);
  const outer = await locks.acquire("k");
  await outer.run(async () => {
    const before = heapUsed();
    for (let count = 0; count < 5_000; count++) await locks.using("k", async ({ signal }) => signal.aborted);
    assert.ok(heapUsed() - before < 1_000_000, "200 bytes each");
    const [inner, multiKeyLock] = [await locks.acquire("k"), await locks.all("k", "other").acquire()];
    const reasons: unknown[] = [];
    for (const { signal } of [inner, multiKeyLock])
      signal.addEventListener("abort", () => reasons.push(signal.reason.reason));
    await driver.revoke?.([{ key: "k", token: outer.token, now: false }]);
    await until(() => reasons.length === 2, { within: 5_000, what: "the loss" });
    assert.deepEqual(reasons, ["revoked", "revoked"]);
    assert.equal(await multiKeyLock.release(), false);
    assert.equal(await inner.release(), false);
  });
  assert.equal(await outer.release(), false);
  await locks.close();
});
