// How a client closes while its locks are in use: see src/client/drain.ts.

import assert from "node:assert/strict";
import { beforeEach, expect, test } from "vitest";
import type { Lock } from "../../../src/client/lock.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { CloseOptions, LocksOptions } from "../../../src/client/options.ts";
import { wrapJob } from "../../../src/cron/job.ts";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { ClosedError } from "../../../src/errors.ts";
// loaded before the tests: what loads it on demand would take turns of the event loop that they do not count
import "../../../src/leader/term.ts";
import "../../../src/client/admin.ts";
import "../../../src/client/transfer.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { locked } from "../../../src/wrapping/locked.ts";
import { withTraits } from "../../support/driver-events.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

let clock: FakeClock;
let store: MemoryStore;
let locks: Locks;
let other: Locks;

function open(options: LocksOptions = {}): Locks {
  return createLocks(memory({ store }), { clock, ttl: "10s", ...options });
}

beforeEach(() => {
  clock = new FakeClock();
  store = memoryStore(clock);
  locks = open();
  other = open();
});

/** A promise, and whether it has settled. */
class Outcome<T> {
  state: "pending" | "fulfilled" | "rejected" = "pending";
  readonly promise: Promise<T>;
  constructor(promise: Promise<T>) {
    this.promise = promise;
    promise.then(
      () => {
        this.state = "fulfilled";
      },
      () => {
        this.state = "rejected";
      },
    );
  }
}

function close(client: Locks, options?: CloseOptions): Outcome<void> {
  return new Outcome(client.close(options));
}

/** A function under a lock that ends when the test says so. */
interface Work {
  readonly lock: Lock;
  readonly result: Outcome<unknown>;
  end(): void;
}

async function work(client: Locks, key: string): Promise<Work> {
  let end = (): void => undefined;
  let held: Lock | null = null;
  const result = new Outcome(
    client.using(key, (lock) => {
      held = lock;
      return new Promise<void>((resolve) => {
        end = resolve;
      });
    }),
  );
  await flushEventLoop(2);
  assert.ok(held);
  return { lock: held, result, end: () => end() };
}

test("a holder is told at once, keeps its lock for longer than a lease, and the next one gets it at its release", async () => {
  const { lock, result, end } = await work(locks, "k");
  const next = new Outcome(other.acquire("k"));
  expect(lock.closing.aborted).toBe(false);
  const closing = close(locks, { drain: "1m" });
  await flushEventLoop(1);
  expect(lock.closing.reason).toBeInstanceOf(ClosedError);
  await clock.advance(30_000);
  lock.throwIfLost();
  expect([closing.state, next.state]).toEqual(["pending", "pending"]);
  end();
  await result.promise;
  await (await next.promise).release();
  await closing.promise;
  await other.close();
});

test("the signal of a holder is aborted at the end of the drain, before its release is sent", async () => {
  const sent: string[] = [];
  const driver = memory({ store });
  const client = createLocks(
    delegate(driver, {
      release: (items) => {
        sent.push(`release of ${items.length}`);
        return driver.release(items);
      },
    }),
    { clock, ttl: "10s" },
  );
  const holders = [await work(client, "a"), await work(client, "b")] as const;
  for (const { lock } of holders) lock.signal.addEventListener("abort", () => sent.push(lock.signal.reason.reason));
  const closing = close(client);
  await clock.advance(4_999);
  expect(sent).toEqual([]);
  await clock.advance(1);
  await closing.promise;
  expect(sent).toEqual(["released", "released", "release of 2"]);
  for (const { end, result } of holders) {
    end();
    await assert.rejects(result.promise, { code: "LOCK_LOST", reason: "released" });
  }
  await other.close();
});

test("releaseAll() takes the locks at once: the signal is aborted before the release, also if requests wait here", async () => {
  const sent: string[] = [];
  const driver = memory({ store });
  const client = createLocks(
    delegate(driver, {
      release: (items) => {
        sent.push("release");
        return driver.release(items);
      },
    }),
    { clock, ttl: "10s" },
  );
  const lock = await client.acquire("k");
  const next = client.acquire("k");
  lock.signal.addEventListener("abort", () => sent.push("lost"));
  await client.releaseAll();
  expect(sent).toEqual(["lost", "release"]);
  await (await next).release();
  await client.close();
  await other.close();
});

test("drain: 0 takes the locks at once; the holder is told before", async () => {
  const told: string[] = [];
  const { lock, result, end } = await work(locks, "k");
  lock.closing.addEventListener("abort", () => told.push("closing"));
  lock.signal.addEventListener("abort", () => told.push("lost"));
  await locks.close({ drain: 0 });
  expect(told).toEqual(["closing", "lost"]);
  end();
  await assert.rejects(result.promise, { code: "LOCK_LOST", reason: "released" });
  await other.close();
});

test("no request is served meanwhile: waits end, and new ones are refused, also those of a holder", async () => {
  const busy = await other.acquire("busy");
  const waiting = [locks.acquire("busy"), locks.acquire("busy", { order: "strict" }), locks.rw("busy").read.acquire()];
  let nested: Promise<unknown> | undefined;
  let end = (): void => undefined;
  const result = locks.using("k", async (lock) => {
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    lock.closing.addEventListener("abort", () => {
      nested = locks.acquire("nested");
    });
    await ended;
  });
  await flushEventLoop(2);
  const closing = close(locks);
  for (const wait of waiting) await assert.rejects(wait, { code: "LOCK_CLOSED" });
  assert.ok(nested);
  await assert.rejects(nested, { code: "LOCK_CLOSED" });
  for (const call of [locks.acquire("k"), locks.tryAcquire("k"), locks.list(), locks.using("x", () => 1)])
    await assert.rejects(call, { code: "LOCK_CLOSED" });
  expect(closing.state).toBe("pending");
  end();
  await result;
  await closing.promise;
  await busy.release();
  await other.close();
});

test("of several keys that are claimed one after another, no key is claimed after close()", async () => {
  const driver = memory({ store });
  const client = createLocks(delegate(driver, withTraits(driver, { manyKeys: false })), { clock, ttl: "10s" });
  const acquiring = client.all("a", "b", "c").acquire();
  acquiring.catch(() => undefined);
  let closing: Promise<void> | undefined;
  client.on("acquired", ({ keys }) => {
    if (keys[0] === "a") closing = client.close();
  });
  await assert.rejects(acquiring, { code: "LOCK_CLOSED" });
  await closing;
  assert.deepEqual(await other.list(), []);
  await other.close();
});

test("a function that closes the client does not wait for itself: others end before it loses its lock", async () => {
  const { result, end } = await work(locks, "other");
  let own: Lock | null = null;
  const inside = new Outcome(
    locks.using("own", async (lock) => {
      own = lock;
      await locks.using("nested", () => locks.close());
    }),
  );
  await flushEventLoop(2);
  assert.ok(own);
  (own as Lock).throwIfLost();
  expect(inside.state).toBe("pending");
  end();
  await result.promise;
  // no time passes
  await assert.rejects(inside.promise, { code: "LOCK_LOST", reason: "released" });
  await other.close();
});

test("two functions that close the client do not wait for each other", async () => {
  const closeInside = (key: string): Promise<void> => locks.using(key, () => locks.close());
  const results = await Promise.allSettled([closeInside("a"), closeInside("b")]);
  expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await other.close();
});

test("a later close() joins the first one, and can make its drain shorter, not longer", async () => {
  const { end, result } = await work(locks, "k");
  result.promise.catch(() => undefined);
  const first = close(locks, { drain: "1m" });
  await clock.advance(10_000);
  const later = [close(locks), close(locks, { drain: "1h" })];
  await clock.advance(10_000);
  expect([first, ...later].map(({ state }) => state)).toEqual(["pending", "pending", "pending"]);
  await Promise.all([locks.close({ drain: 0 }), first.promise, ...later.map(({ promise }) => promise)]);
  end();
  await assert.rejects(result.promise, { code: "LOCK_LOST" });
  await locks.close();
  await other.close();
});

test("a lock of acquire() is waited for until its last handle is released, or it is detached", async () => {
  const [lock, moved] = [await locks.acquire("k"), await locks.acquire("moved")];
  const closing = close(locks);
  await clock.advance(4_000);
  expect(closing.state).toBe("pending");
  expect(await lock.release()).toBe(true);
  await clock.advance(500);
  expect(closing.state).toBe("pending");
  const reference = await moved.detach();
  // no more time passes
  await closing.promise;
  await (await other.attach(reference)).release();
  await other.close();
});

test("a request that has joined is told, too, and its lock is waited for", async () => {
  let end = (): void => undefined;
  let joined: Lock | undefined;
  const result = locks.using("k", async () => {
    joined = await locks.all("j", "k").acquire();
    await new Promise<void>((resolve) => {
      end = resolve;
    });
  });
  await flushEventLoop(2);
  const closing = close(locks);
  end();
  await result;
  await flushEventLoop(2);
  expect([joined?.closing.aborted, closing.state]).toEqual([true, "pending"]);
  expect(await joined?.release()).toBe(true);
  await closing.promise;
  await other.close();
});

test("an idle cached lock is given back at once, and none is cached any more", async () => {
  const client = open({ cache: "1m" });
  await client.using("idle", () => undefined);
  const { end, result } = await work(client, "used");
  const closing = close(client);
  const next = new Outcome(other.acquire("idle"));
  await flushEventLoop(2);
  expect([closing.state, next.state]).toEqual(["pending", "fulfilled"]);
  end();
  await result.promise;
  await closing.promise;
  await (await next.promise).release();
  await other.close();
});

test("the function of a revoked lock is waited for: its key is locked until it has ended", async () => {
  const { lock, end, result } = await work(locks, "k");
  result.promise.catch(() => undefined);
  await other.revoke("k", lock.token);
  const next = new Outcome(other.acquire("k"));
  const closing = close(locks);
  await clock.advance(4_000);
  expect([lock.signal.reason.reason, lock.closing.aborted]).toEqual(["revoked", true]);
  expect([closing.state, next.state]).toEqual(["pending", "pending"]);
  end();
  await assert.rejects(result.promise, { code: "LOCK_LOST", reason: "revoked" });
  await (await next.promise).release();
  await closing.promise;
  await other.close();
});

test("`closing` can be read first after close(), and a lock that was released before is not told", async () => {
  const before = await locks.acquire("before");
  await before.release();
  const { lock, end, result } = await work(locks, "k");
  const closing = close(locks);
  await flushEventLoop(1);
  expect([before.closing.aborted, lock.closing.aborted]).toEqual([false, true]);
  end();
  await result.promise;
  await closing.promise;
  await other.close();
});

test("wrap(), @locked() and wrapJob() are waited for like using()", async () => {
  const ends: (() => void)[] = [];
  const run = (): Promise<void> => new Promise((resolve) => ends.push(resolve));
  const decorate = locked(() => locks, { key: "locked" }) as unknown as (
    method: typeof run,
    context: object,
  ) => typeof run;
  const pay = decorate(run, { kind: "method", name: "pay" });
  const job = wrapJob(locks, "job", run, { overlap: false });
  const results = [locks.wrap("wrapped", run)(), pay(), job(new Date())];
  await flushEventLoop(10);
  expect(ends).toHaveLength(3);
  const closing = close(locks);
  for (const end of ends) {
    await clock.advance(1_000);
    expect(closing.state).toBe("pending");
    end();
  }
  await Promise.all(results);
  await closing.promise;
  await other.close({ drain: 0 });
});

test("a leader's signal is aborted at once, its lock is held until the body ends, and the loop ends without an error", async () => {
  let end = (): void => undefined;
  let signal: AbortSignal | undefined;
  const loop = (async () => {
    for await (const term of locks.leader("leader")) {
      signal = term.signal;
      await new Promise<void>((resolve) => {
        end = resolve;
      });
    }
  })();
  await flushEventLoop(5);
  const next = new Outcome(other.acquire("leader"));
  const closing = close(locks);
  await clock.advance(3_000);
  expect([signal?.reason.reason, closing.state, next.state]).toEqual(["released", "pending", "pending"]);
  end();
  await loop;
  await (await next.promise).release();
  await closing.promise;
  await other.close();
});

test("a client that holds nothing closes without waiting, also one that was never opened", async () => {
  await locks.using("k", () => undefined);
  await Promise.all([locks.close({ drain: "1h" }), other.close()]);
  expect(clock.pendingTimers).toBe(0);
});

test("drain is a duration of at most an hour, of the client or of close()", async () => {
  const wrong: readonly [unknown, RegExp][] = [
    ["61m", /drain must be at most 1 h, not "61m"/],
    [-1, /drain must be a whole number of milliseconds/],
    [Number.POSITIVE_INFINITY, /drain must be a whole number/],
  ];
  for (const [drain, message] of wrong) {
    await assert.rejects(locks.close({ drain } as CloseOptions), message);
    assert.throws(() => open({ drain } as LocksOptions), message);
  }
  await assert.rejects(locks.close({ grace: 1 } as CloseOptions), /close has no option "grace"/);
  // it is still open
  const client = open({ drain: "1s" });
  const lock = await client.acquire("k");
  const closing = close(client);
  await clock.advance(1_000);
  await closing.promise;
  expect(lock.signal.aborted).toBe(true);
  await Promise.all([locks.close(), other.close()]);
});
