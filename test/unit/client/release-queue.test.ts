import assert from "node:assert/strict";
import { describe, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { Driver, Release } from "../../../src/spi/driver.ts";
import { chaos } from "../../../src/testing/chaos/driver.ts";
import { withTraits } from "../../support/driver-events.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";

interface Fixture {
  readonly clock: FakeClock;
  readonly locks: Locks;
  /** When releases were sent. */
  readonly sentAt: number[];
}

/** A client whose store calls `release` for each release. */
function createFixture(
  release: (driver: Driver, releases: readonly Release[]) => Promise<readonly boolean[]>,
): Fixture {
  const clock = new FakeClock(0);
  const driver = memory({ store: memoryStore(clock) });
  const sentAt: number[] = [];
  const faultyDriver: Driver = {
    ...driver,
    ...withTraits(driver, { lease: { claim: true, sessionMs: 9_000 } }),
    release: (releases) => {
      sentAt.push(clock.now());
      return release(driver, releases);
    },
  };
  return { clock, sentAt, locks: createLocks(faultyDriver, { clock, ttl: "9s" }) };
}

const refusedError = (): Promise<never> => Promise.reject(new Error("cut off"));

/** The outcome, if it has settled. */
function trackSettlement<T>(promise: Promise<T>): { value: T | undefined } {
  const settlement: { value: T | undefined } = { value: undefined };
  void promise.then((value) => {
    settlement.value = value;
  });
  return settlement;
}

describe("a release without an answer from the store", () => {
  for (const [how, answer] of [
    ["refuses", refusedError],
    ["swallows", () => new Promise<never>(() => undefined)],
  ] as const) {
    test(`settles when the store has forgotten the claim, not later, and is not sent after that (it ${how} them)`, async () => {
      const { clock, locks, sentAt } = createFixture(answer);
      const lock = await locks.acquire("k");
      await clock.advance(100);
      const release = trackSettlement(lock.release());
      await clock.advance(8_899);
      assert.equal(release.value, undefined);
      await clock.advance(1);
      assert.equal(release.value, true);
      const sentCount = sentAt.length;
      assert.ok(sentCount >= 4, `${sentCount} attempts`);
      await clock.advance(60_000);
      assert.equal(sentAt.length, sentCount);
    });
  }

  test("is repeated as soon as the store is connected again, without waiting for its retry", async () => {
    const clock = new FakeClock(0);
    const driver = chaos(memory({ store: memoryStore(clock) }));
    const locks = createLocks(driver, { clock });
    const lock = await locks.acquire("k");
    driver.disconnect();
    const release = trackSettlement(lock.release());
    await flushEventLoop();
    assert.equal(release.value, undefined);
    driver.reconnect();
    await flushEventLoop();
    assert.equal(release.value, true);
    assert.equal(driver.countCalls("release"), 2);
    assert.equal(clock.pendingTimers, 0, "the retry is over");
  });

  test("of a session claim is reported as unknown after that time, and still sent", async () => {
    const { clock, locks, sentAt } = createFixture(refusedError);
    const lock = await locks.acquire("k", { ttl: "session" });
    const release = trackSettlement(lock.release());
    await clock.advance(9_100);
    assert.equal(release.value, true);
    const sentCount = sentAt.length;
    await clock.advance(9_000);
    assert.ok(sentAt.length > sentCount, "its session lives, and so does the claim");
    const closed = trackSettlement(locks.close().then(() => true));
    await clock.advance(10_000);
    assert.equal(closed.value, true);
    const finalCount = sentAt.length;
    await clock.advance(60_000);
    assert.equal(sentAt.length, finalCount, "a closed client sends nothing");
    assert.equal(clock.pendingTimers, 0, "and keeps no timer");
  });

  test("during a sleep of the machine: the store's answer that the claim was gone does not date the release", async () => {
    const { clock, locks } = createFixture(async (driver, releases) => {
      await driver.release(releases);
      clock.suspend(60_000);
      return releases.map(() => false);
    });
    const lock = await locks.acquire("k");
    assert.equal(await lock.release(), true);
  });
});

test("close() does not wait for a store that refuses permanently, as with a revoked credential", async () => {
  const { locks, sentAt } = createFixture(() => Promise.reject(new StoreRefusedError("no valid credential was given")));
  await locks.acquire("k");
  // no time passes on the client's clock: a wait until the bound would never end
  await locks.close();
  assert.equal(sentAt.length, 1);
});
