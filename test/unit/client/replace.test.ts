// The options `replace` and `maxQueue`: what test/client/replace.ts, which runs on every store, does not reach.

import assert from "node:assert/strict";
import { beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
// loaded before the tests: what loads it on demand would take turns of the event loop that they do not count
import "../../../src/client/replacement.ts";
import type { Driver, RevokeTarget } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { createTestLocks } from "../../../src/testing/index.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

let clock: FakeClock;
let store: MemoryStore;
let other: Locks;

function open(change: (driver: Driver) => Partial<Driver> = () => ({})): Locks {
  const driver = memory({ store });
  return createLocks(delegate(driver, change(driver)), { clock, ttl: "9s", label: "the newer one" });
}

beforeEach(() => {
  clock = new FakeClock();
  store = memoryStore(clock);
  other = open();
});

test("the revocation names the holder's token, and says by whom it is replaced", async () => {
  const targets: RevokeTarget[] = [];
  const locks = open((driver) => ({
    revoke(list) {
      targets.push(...list);
      return (driver.revoke as NonNullable<Driver["revoke"]>)(list);
    },
  }));
  const old = await other.acquire("k");
  old.signal.addEventListener("abort", () => void old.release());
  const acquiring = locks.acquire("k", { replace: true });
  await clock.advance(3_000);
  await (await acquiring).release();
  expect(targets).toMatchObject([{ key: "k", token: old.token, now: false, reason: "replaced by the newer one" }]);
  await clock.advance(1_000);
  expect(targets).toHaveLength(1);
  await Promise.all([locks.close(), other.close()]);
});

test("a client that may not revoke gets UnsupportedError, and its claim leaves the queue", async () => {
  const refusal = new StoreRefusedError("this account may not revoke");
  const locks = open(() => ({ revoke: () => Promise.reject(refusal) }));
  const lock = await other.acquire("k");
  await assert.rejects(locks.acquire("k", { replace: true }), {
    code: "LOCK_UNSUPPORTED",
    message: "cannot replace the holder: this account may not revoke",
    keys: ["k"],
    cause: refusal,
  });
  lock.throwIfLost();
  await flushEventLoop(3);
  expect((await other.list()).length).toBe(1);
  await clock.advance(1_000);
  await lock.release();
  await Promise.all([locks.close(), other.close()]);
});

test("a revocation that fails is repeated", async () => {
  let calls = 0;
  const locks = open((driver) => ({
    revoke: (list) =>
      calls++ === 0 ? Promise.reject(new Error("cut")) : (driver.revoke as NonNullable<Driver["revoke"]>)(list),
  }));
  const old = await other.acquire("k");
  old.signal.addEventListener("abort", () => void old.release());
  const acquiring = locks.acquire("k", { replace: true });
  await clock.advance(5_000);
  await (await acquiring).release();
  expect(calls).toBe(2);
  await clock.advance(1_000);
  await Promise.all([locks.close(), other.close()]);
});

test("nothing is revoked for a request that has left", async () => {
  let calls = 0;
  let answerList = (): void => undefined;
  const locks = open((driver) => ({
    async list(query, options) {
      const page = await driver.list(query, options);
      await new Promise<void>((resolve) => {
        answerList = resolve;
      });
      return page;
    },
    revoke: () => Promise.resolve([calls++ > 0]),
  }));
  const lock = await other.acquire("k");
  const controller = new AbortController();
  const acquiring = locks.acquire("k", { replace: true, signal: controller.signal });
  await flushEventLoop(5);
  controller.abort(new Error("enough"));
  await assert.rejects(acquiring, /enough/);
  answerList();
  await clock.advance(2_000);
  expect(calls).toBe(0);
  lock.throwIfLost();
  await lock.release();
  await Promise.all([locks.close(), other.close()]);
});

test("maxQueue counts the requests of the client for the key, whatever they lock besides it and in whatever order", async () => {
  const locks = open();
  const lock = await other.acquire("k");
  const waits = [
    locks.acquire("k"),
    locks.acquire("k", { ttl: "1m" }),
    locks.all("j", "k").acquire(),
    locks.acquire("k", { order: "strict" }),
    locks.rw("k").read.acquire(),
  ];
  for (const wait of waits) wait.catch(() => undefined);
  await flushEventLoop(2);
  const failed: unknown[] = [];
  locks.on("failed", ({ outcome }) => failed.push(outcome));
  await assert.rejects(locks.acquire("k", { maxQueue: 5 }), {
    code: "LOCK_QUEUE_FULL",
    name: "QueueFullError",
    waiting: 5,
    message: '5 requests of this client wait for "k" already',
  });
  await assert.rejects(locks.all("a", "k").acquire({ maxQueue: 5 }), { keys: ["k"], waiting: 5 });
  expect(failed).toEqual(["busy", "busy"]);
  const sixth = locks.acquire("k", { maxQueue: 6 });
  sixth.catch(() => undefined);
  await flushEventLoop(2);
  await assert.rejects(locks.acquire("k", { maxQueue: 6 }), { waiting: 6 });
  await locks.close();
  await lock.release();
  await other.close();
  await assert.rejects(sixth, { code: "LOCK_CLOSED" });
});

test("requests that have got the lock or have left are not counted", async () => {
  const locks = open();
  for (let round = 0; round < 3; round++) {
    for (const target of [locks.mutex("k"), locks.all("j", "k"), locks.rw("k").read])
      await target.using({ maxQueue: 1 }, () => undefined);
    await locks.using("k", { order: "strict", maxQueue: 1 }, () => undefined);
  }
  const lock = await locks.acquire("k", { maxQueue: 1 });
  const next = locks.acquire("k", { maxQueue: 1 });
  await assert.rejects(locks.acquire("k", { maxQueue: 1 }), { waiting: 1 });
  await lock.release();
  await (await next).release();
  await Promise.all([locks.close(), other.close()]);
});

test("onBusy of wrap() replaces a call that would be one too many", async () => {
  const locks = open();
  const lock = await other.acquire("k");
  const call = locks.wrap("k", { maxQueue: 1, onBusy: (error) => error.code }, async () => "done");
  const first = call();
  await flushEventLoop(2);
  expect(await call()).toBe("LOCK_QUEUE_FULL");
  await lock.release();
  expect(await first).toBe("done");
  await Promise.all([locks.close(), other.close()]);
});

test("holdfast/testing has both: a lock of the test is replaced, and requests are counted", async () => {
  const locks = createTestLocks({ ttl: "9s" });
  const old = await locks.acquire("k");
  old.signal.addEventListener("abort", () => void old.release());
  const acquiring = locks.acquire("k", { replace: true });
  await locks.advance("3s");
  const lock = await acquiring;
  expect([old.signal.reason.reason, lock.token > old.token]).toEqual(["revoked", true]);
  const next = locks.acquire("k");
  next.catch(() => undefined);
  await assert.rejects(locks.acquire("k", { maxQueue: 1 }), { code: "LOCK_QUEUE_FULL", waiting: 1 });
  await locks.advance("1s");
  await locks.close();
  await other.close();
});
