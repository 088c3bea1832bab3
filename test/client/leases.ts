/** A held lock is renewed until its release; the client detects a lost lock by its own clock. */

import assert from "node:assert/strict";
import type { Lock } from "../../src/client/lock.ts";
import type { DefineTest, TestContext } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import type { TestClient } from "../../src/conformance/test-client.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import type { LockLostError } from "../../src/errors.ts";
import type { Clock } from "../../src/util/clock.ts";
import { systemClock } from "../../src/util/clock.ts";
import { assertFree, settledState } from "./helpers.ts";

export function testLeases(test: DefineTest, settings: ConformanceSettings): void {
  if (!settings.traits.lease.claim) return;

  test("a held lock is renewed, and so is a waiting one", async (context) => {
    const ttl = context.scaleLease(400);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context, { ttl })];
    const lock = await clientA.locks.acquire("key");
    const waits = deferRejection(clientB.locks.acquire("key"));
    const { token } = lock;
    const end = performance.now() + 1.5 * ttl;
    await context.waitUntil("a lease and a half to pass", () => {
      lock.throwIfLost();
      return performance.now() >= end;
    });
    assert.equal(await settledState(waits), "pending");
    assert.equal(lock.token, token);
    assert.equal(await lock.release(), true);
    await (await waits).release();
  });

  test("clients whose wall clocks are hours off exclude each other", async (context) => {
    const withWallOffset = (hours: number): Clock => ({ ...systemClock, wall: () => Date.now() + hours * 3_600_000 });
    const ttl = context.scaleLease(400);
    const [slow, fast] = [
      await openTestClient(context, { ttl, clock: withWallOffset(-5) }),
      await openTestClient(context, { ttl, clock: withWallOffset(5) }),
    ];
    const lock = await slow.locks.acquire("key");
    const waits = deferRejection(fast.locks.acquire("key"));
    const end = performance.now() + 1.2 * ttl;
    await context.waitUntil("more than a lease to pass", () => {
      lock.throwIfLost();
      return performance.now() >= end;
    });
    assert.equal(await settledState(waits), "pending");
    assert.equal(await lock.release(), true);
    const next = await waits;
    if (settings.traits.fencing) assert.ok(next.token > lock.token);
    assert.equal(await next.release(), true);
  });

  testLosses(test, settings);

  test("renew: false sends no renewal, and the lease is what ttl says", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { renew: false, ttl: context.shortLeaseMs }),
      await openTestClient(context),
    ];
    const startedAt = performance.now();
    const lock = await clientA.locks.acquire("key");
    const next = await clientB.locks.acquire("key", { wait: context.scaleMs(5_000) });
    assert.ok(performance.now() - startedAt >= context.shortLeaseMs * 0.99 - 2);
    assert.throws(() => lock.throwIfLost(), hasCode("LOCK_LOST"));
    assert.equal(clientA.chaosDriver.countCalls("renew"), 0);
    assert.equal(await lock.release(), false);
    await next.release();
  });

  test("a holder that stays longer than maxHold is given up", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { maxHold: 60, ttl: context.shortLeaseMs }),
      await openTestClient(context),
    ];
    const lock = await clientA.locks.acquire("key");
    const waits = deferRejection(clientB.locks.acquire("key", { wait: context.scaleMs(5_000) }));
    await waitForAbort(context, lock, "maxHold");
    assert.equal(await lock.release(), false);
    await (await waits).release();
  });

  if (!settings.verbs.includes("revoke")) return;

  test("a revoked lock is lost with that reason, and its entry is kept until its holder releases it", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { ttl: context.scaleLease(900) }),
      await openTestClient(context),
    ];
    const { driver } = await context.openClient();
    const lock = await clientA.locks.acquire("key");
    const waits = deferRejection(clientB.locks.acquire("key"));
    assert.deepEqual(await driver.revoke?.([{ key: "key", token: lock.token, now: false }]), [true]);
    await waitForAbort(context, lock, "revoked");
    assert.equal(await settledState(waits), "pending");
    assert.equal(await lock.release(), false);
    await (await waits).release();
  });
}

function testLosses(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a disconnected client loses its lock by its own clock, before the next holder is granted", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { ttl: context.shortLeaseMs }),
      await openTestClient(context),
    ];
    const startedAt = performance.now();
    const lock = await clientA.locks.acquire("key");
    const waits = deferRejection(clientB.locks.acquire("key", { wait: context.scaleMs(5_000) }));
    clientA.chaosDriver.disconnect();
    const lossSeen = deferRejection(waitForAbort(context, lock, "expired").then(() => performance.now()));
    const granted = deferRejection(waits.then(() => performance.now()));
    const [lossSeenAt, grantedAt] = await Promise.all([lossSeen, granted]);
    // the timers of a stalled process fire late and together; the clock that throwIfLost() reads does not
    if (lossSeenAt - startedAt < context.shortLeaseMs) assert.ok(lossSeenAt <= grantedAt);
    assert.throws(() => lock.throwIfLost(), hasCode("LOCK_LOST"));
    assert.equal(lock.remainingMs, 0);
    assert.equal(await lock.release(), false);
    clientA.chaosDriver.reconnect();
    const next = await waits;
    if (traits.fencing) assert.ok(next.token > lock.token);
    next.throwIfLost();
    assert.equal(await next.release(), true);
    await assertFree(clientA.locks.mutex("key"), context);
  });

  test("using() rejects with LockLostError if the lock was lost, although the body succeeded", async (context) => {
    const testClient = await openTestClient(context, { ttl: context.scaleLease(150) });
    const lostCall = testClient.locks.using("key", async (lock) => {
      await loseByDisconnect(context, testClient, lock);
      return "done";
    });
    await assert.rejects(lostCall, hasCode("LOCK_LOST"));
    await waitForEmptyStore(context);
  });

  test("the body's own error wins over the loss", async (context) => {
    const testClient = await openTestClient(context, { ttl: context.scaleLease(150) });
    const failed = testClient.locks.using("key", async (lock) => {
      await loseByDisconnect(context, testClient, lock);
      throw new RangeError("body");
    });
    await assert.rejects(failed, RangeError);
    await waitForEmptyStore(context);
  });

  test("a lost lock that is disposed of throws, unless it was released before", async (context) => {
    const testClient = await openTestClient(context, { ttl: context.scaleLease(150) });
    const [lock, released] = [await testClient.locks.acquire("key"), await testClient.locks.acquire("other")];
    await released.release();
    await loseByDisconnect(context, testClient, lock);
    await assert.rejects(async () => lock[Symbol.asyncDispose](), hasCode("LOCK_LOST"));
    await released[Symbol.asyncDispose]();
  });

  test("a short outage puts a lock in jeopardy and restores it, with the same token", async (context) => {
    const testClient = await openTestClient(context, { ttl: context.scaleLease(1_200) });
    const events: string[] = [];
    for (const event of ["jeopardy", "restored", "lost", "storeDown", "storeUp"] as const) {
      testClient.locks.on(event, () => events.push(event));
    }
    const lock = await testClient.locks.acquire("key");
    const { token } = lock;
    testClient.chaosDriver.disconnect();
    await context.waitUntil("jeopardy", () => events.includes("jeopardy"));
    lock.throwIfLost();
    testClient.chaosDriver.reconnect();
    await context.waitUntil("the end of jeopardy", () => events.includes("restored"));
    lock.throwIfLost();
    assert.equal(lock.token, token);
    assert.deepEqual(events.sort(), ["jeopardy", "restored", "storeDown", "storeUp"]);
    assert.equal(await lock.release(), true);
  });

  test("a release that could not be answered in time is repeated until the store has forgotten", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { ttl: context.scaleLease(900) }),
      await openTestClient(context),
    ];
    const lock = await clientA.locks.acquire("key");
    clientA.chaosDriver.loseNextReply("release");
    assert.equal(
      await lock.release(),
      true,
      "its first release reached the store; that the second found nothing is no loss",
    );
    const secondLock = await clientA.locks.acquire("key");
    clientA.chaosDriver.loseNextCall("release", 2);
    assert.equal(await secondLock.release(), true);
    await assertFree(clientB.locks.mutex("key"), context);
  });
}

/** Waits until the lock's signal is aborted for this reason. */
async function waitForAbort(context: TestContext, { signal }: Lock, reason: LockLostError["reason"]): Promise<void> {
  await context.waitUntil(`the signal of a lock that is ${reason}`, () => signal.aborted);
  hasCode("LOCK_LOST")(signal.reason);
  assert.equal((signal.reason as LockLostError).reason, reason);
}

/** Disconnects until the lock is lost. */
async function loseByDisconnect(context: TestContext, { chaosDriver }: TestClient, lock: Lock): Promise<void> {
  chaosDriver.disconnect();
  await waitForAbort(context, lock, "expired");
  chaosDriver.reconnect();
}
