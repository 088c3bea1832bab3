import assert from "node:assert/strict";
import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { until } from "../../../src/testing/until.ts";
import { withTraits } from "../../support/driver-events.ts";

// detach({ ttl }) while the store does not answer: whichever call arrived, the client relies on the lock no longer than that ttl.

/** A driver whose detach() is executed, or not, and fails the given number of times before its answer arrives. */
function failingDetachDriver(
  times: number,
  store = memoryStore(),
): { driver: Driver; store: typeof store; callTimes: number[] } {
  const inner = memory({ store });
  const callTimes: number[] = [];
  const driver = delegate(inner, {
    async detach(claims, remainingMs) {
      callTimes.push(remainingMs ?? Number.NaN);
      const results = await inner.detach?.(claims, remainingMs);
      if (callTimes.length <= times) throw new Error("the answer was lost");
      return results ?? [];
    },
  });
  return { driver, store, callTimes };
}

test("a detach is sent again until it is answered, with the time that remains by then", async () => {
  const { driver, store, callTimes } = failingDetachDriver(2);
  const [locks, other] = [createLocks(driver), createLocks(memory({ store }))];
  const lock = await locks.acquire("k", { ttl: "60s" });
  const { token } = lock;
  await lock.detach({ ttl: "20s" });
  const [first = 0, , last = 0] = callTimes;
  expect(callTimes).toHaveLength(3);
  expect(first).toBe(20_000);
  expect(last).toBeLessThanOrEqual(19_850);
  expect(await lock.release()).toBe(false);
  const [view] = await other.list("k");
  expect(view?.state).toBe("held");
  expect(view?.remainingMs).toBeLessThanOrEqual(last);
  await other.revoke("k", token, { now: true });
  await Promise.all([locks.close(), other.close()]);
});

test("without an answer the lock is given up before the store can have ended it, and ends by itself", async () => {
  const { driver, store } = failingDetachDriver(Number.POSITIVE_INFINITY);
  const [locks, other] = [createLocks(driver), createLocks(memory({ store }))];
  const lock = await locks.acquire("k", { ttl: "10s" });
  const start = performance.now();
  await expect(lock.detach({ ttl: 400 })).rejects.toMatchObject({ code: "LOCK_STORE_FAILED" });
  // on a machine that stood still meanwhile the clock alone ends the lock
  expect(() => lock.throwIfLost()).toThrow(/lost the lock/);
  expect([lock.remainingMs, await lock.release()]).toEqual([0, false]);
  const early = await other.tryAcquire("k");
  if (performance.now() - start < 400) expect(early, "the store still holds it").toBeNull();
  await early?.release();
  await (await other.acquire("k", { wait: "20s" })).release();
  await Promise.all([locks.close(), other.close()]);
});

test("no renewal restarts the full lease during a detach, however long the answer takes", async () => {
  const store = memoryStore();
  const inner = memory({ store });
  let isAsked = false;
  let late = 0;
  const driver = delegate(inner, {
    async detach(claims, remainingMs) {
      const results = await inner.detach?.(claims, remainingMs);
      isAsked = true;
      // longer than until the next renewal, a third of the lease after the last
      await new Promise((resolve) => setTimeout(resolve, 400));
      return results ?? [];
    },
    renew(claims) {
      if (isAsked) late++;
      return inner.renew(claims);
    },
  });
  const [locks, other] = [createLocks(driver), createLocks(memory({ store }))];
  const lock = await locks.acquire("k", { ttl: "900ms" });
  const { token } = lock;
  await lock.detach({ ttl: "800ms" }).catch(() => undefined);
  expect(late).toBe(0);
  await other.revoke("k", token, { now: true });
  await Promise.all([locks.close(), other.close()]);
});

test("a lock that is gone is reported as lost, without a second call", async () => {
  const { driver, store, callTimes } = failingDetachDriver(0);
  const [locks, other] = [createLocks(driver), createLocks(memory({ store }))];
  const lock = await locks.acquire("k");
  await other.revoke("k", lock.token, { now: true });
  await expect(lock.detach({ ttl: 400 })).rejects.toMatchObject({ code: "LOCK_LOST" });
  expect(callTimes.length).toBeLessThanOrEqual(1);
  await Promise.all([locks.close(), other.close()]);
});

/** A client whose detach() is executed at once and answered when the test says so, and another client of its store. */
function slowDetachFixture(refusal?: Error): { locks: Locks; other: Locks; answerDetach: () => void } {
  const store = memoryStore();
  const inner = memory({ store });
  let answerDetach: () => void = () => undefined;
  const reply = new Promise<void>((resolve) => {
    answerDetach = resolve;
  });
  const driver = delegate(inner, {
    async detach(claims, remainingMs) {
      const wereHeld = refusal === undefined ? await inner.detach?.(claims, remainingMs) : [];
      await reply;
      if (refusal !== undefined) throw refusal;
      return wereHeld ?? [];
    },
  });
  return { locks: createLocks(driver), other: createLocks(memory({ store })), answerDetach };
}

test("a lock that is lost while it is detached leaves the next local holder alone", async () => {
  const { locks, other, answerDetach } = slowDetachFixture(new StoreRefusedError("refused"));
  const lock = await locks.acquire("k");
  const waiting = locks.acquire("k");
  const detaching = lock.detach({ ttl: "20s" });
  await other.revoke("k", lock.token, { now: true });
  const next = await waiting;
  answerDetach();
  await expect(detaching).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  next.throwIfLost();
  expect(await next.release()).toBe(true);
  // one claim for each request: nothing is left at the store
  expect(await other.list("k")).toEqual([]);
  await Promise.all([locks.close(), other.close()]);
});

test("a lock that is released while it is detached has no reference, and is not handed off with the shortened lease", async () => {
  const { locks, other, answerDetach } = slowDetachFixture();
  const lock = await locks.acquire("k");
  const waiting = locks.acquire("k");
  const detaching = lock.detach({ ttl: "20s" });
  await new Promise((resolve) => setImmediate(resolve));
  expect(await lock.release()).toBe(true);
  const next = await waiting;
  answerDetach();
  await expect(detaching).rejects.toMatchObject({ code: "LOCK_LOST", reason: "released" });
  next.throwIfLost();
  expect(next.remainingMs).toBeGreaterThan(20_000);
  expect([await lock.release(), await next.release()]).toEqual([true, true]);
  expect(await other.list("k")).toEqual([]);
  await Promise.all([locks.close(), other.close()]);
});

test("a client attaches a lock once: the second attempt is an error, and the first lock stays", async () => {
  const store = memoryStore();
  const [locks, other] = [createLocks(memory({ store })), createLocks(memory({ store }))];
  const reference = await (await other.acquire("k")).detach();
  const [first, second] = await Promise.allSettled([locks.attach(reference), locks.attach(reference)]);
  assert.ok(first?.status === "fulfilled" && second?.status === "rejected");
  expect(second.reason).toMatchObject({
    code: "LOCK_UNSUPPORTED",
    keys: ["k"],
    message: expect.stringContaining("already"),
  });
  first.value.throwIfLost();
  // it can be transferred again, and return
  const secondLock = await locks.attach(await first.value.detach());
  await assert.rejects(locks.attach(reference), { code: "LOCK_UNSUPPORTED" });
  assert.equal(await secondLock.release(), true);
  await assert.rejects(locks.attach(reference), { code: "LOCK_LOST" });
  await Promise.all([locks.close(), other.close()]);
});

test("the token of an attached lock is a floor for later requests", async () => {
  const store = memoryStore();
  const claims: Claim[] = [];
  const inner = memory({ store });
  const driver: Driver = {
    ...inner,
    // a store that outlives this process, and so may forget its tokens
    ...withTraits(inner, { durability: "restart" }),
    claim(claim) {
      claims.push(claim);
      return inner.claim(claim);
    },
  };
  const [locks, other] = [createLocks(driver), createLocks(memory({ store }))];
  const lock = await locks.attach(await (await other.acquire("k")).detach());
  await lock.release();
  await (await locks.acquire("k")).release();
  assert.equal(claims[0]?.floor, lock.token + 1n);
  await Promise.all([locks.close(), other.close()]);
});

test("maxHold limits an attached lock, too", async () => {
  const store = memoryStore();
  const [locks, successor] = [createLocks(memory({ store })), createLocks(memory({ store }), { maxHold: 50 })];
  const reference = await (await locks.acquire("k", { ttl: "60s" })).detach();
  const lock = await successor.attach(reference);
  await until(() => lock.signal.aborted, { within: 10_000, what: "the end of maxHold" });
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "maxHold" });
  await Promise.all([locks.close(), successor.close()]);
});
