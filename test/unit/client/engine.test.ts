import assert from "node:assert/strict";
import { describe, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { LocksOptions } from "../../../src/client/options.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { LockLostError } from "../../../src/errors.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { FakeClock } from "../../support/fake-clock.ts";

interface Fixture {
  readonly clock: FakeClock;
  readonly locks: Locks;
  /** Calls of the driver, by verb. */
  readonly calls: Record<"claim" | "renew" | "release", number>;
  /** While true every call of the store fails. */
  isCut: boolean;
}

/** A client and its store on one fake clock. */
function createFixture(options: LocksOptions = {}): Fixture {
  const clock = new FakeClock();
  const driver = memory({ store: memoryStore(clock) });
  const calls = { claim: 0, renew: 0, release: 0 };
  const fixture = { clock, calls, isCut: false };
  const callStore = <T>(verb: keyof typeof calls, call: () => Promise<T>): Promise<T> => {
    calls[verb]++;
    return fixture.isCut ? Promise.reject(new Error("cut off")) : call();
  };
  const observedDriver: Driver = {
    ...driver,
    claim: (claim) => callStore("claim", () => driver.claim(claim)),
    renew: (claims) => callStore("renew", () => driver.renew(claims)),
    release: (releases) => callStore("release", () => driver.release(releases)),
  };
  return Object.assign(fixture, { locks: createLocks(observedDriver, { ...options, clock }) });
}

describe("the lease by the client's clock", () => {
  test("is renewed at a third of the ttl and ends at nine tenths", async () => {
    const fixture = createFixture({ ttl: "30s" });
    const lock = await fixture.locks.acquire("k");
    assert.equal(lock.remainingMs, 27_000);
    await fixture.clock.advance(9_999);
    assert.equal(fixture.calls.renew, 0);
    await fixture.clock.advance(1);
    assert.equal(fixture.calls.renew, 1);
    assert.equal(lock.remainingMs, 27_000);
    fixture.isCut = true;
    await fixture.clock.advance(26_999);
    lock.throwIfLost();
    assert.equal(lock.signal.aborted, false);
    await fixture.clock.advance(1);
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST", reason: "expired" });
    assert.equal(lock.signal.aborted, true);
    assert.ok(lock.signal.reason instanceof LockLostError);
    fixture.isCut = false;
    assert.equal(await lock.release(), false);
  });

  test("throwIfLost() and release() read the clock although no timer has fired", async () => {
    const fixture = createFixture({ ttl: "10s", renew: false });
    const lock = await fixture.locks.acquire("k");
    // no timer is set at all, as if the event loop had stalled
    assert.equal(fixture.clock.pendingTimers, 0);
    await fixture.clock.advance(9_000);
    assert.equal(lock.signal.aborted, true, "a signal first read after the lease's end is aborted");
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST" });
    assert.equal(lock.remainingMs, 0);
    assert.equal(await lock.release(), false);
  });

  test("all held claims are renewed in one call, of at most 500 claims", async () => {
    const fixture = createFixture({ ttl: "30s" });
    const acquired = Array.from({ length: 1_100 }, (_, index) => fixture.locks.acquire(`k${index}`));
    const held = await Promise.all(acquired);
    await fixture.clock.advance(10_000);
    assert.equal(fixture.calls.renew, 3);
    // a lock acquired a little later joins the next renewal
    held.push(...(await Promise.all([fixture.locks.acquire("late"), fixture.locks.acquire("later")])));
    await fixture.clock.advance(9_500);
    assert.equal(fixture.calls.renew, 3);
    await fixture.clock.advance(500);
    assert.equal(fixture.calls.renew, 6);
    await fixture.clock.advance(10_000);
    assert.equal(fixture.calls.renew, 9);
    for (const lock of held) lock.throwIfLost();
    await Promise.all(held.map((lock) => lock.release()));
    assert.equal(fixture.calls.release, 3);
  });

  test("claims acquired at any time are soon renewed together, in one call for each third of the lease", async () => {
    const fixture = createFixture({ ttl: "30s" });
    for (let index = 0; index < 40; index++) {
      await fixture.locks.acquire(`k${index}`);
      await fixture.clock.advance((index * 7_919) % 600);
    }
    await fixture.clock.advance(10_000);
    const before = fixture.calls.renew;
    await fixture.clock.advance(60_000);
    assert.equal(fixture.calls.renew - before, 6);
  });

  test("a renewal fills the batch of 500 with those that are due next, and leaves the others", async () => {
    const clock = new FakeClock();
    const driver = memory({ store: memoryStore(clock) });
    const sizes: number[] = [];
    const renew: Driver["renew"] = (claims) => {
      sizes.push(claims.length);
      return driver.renew(claims);
    };
    const locks = createLocks({ ...driver, renew }, { clock, ttl: "30s" });
    await locks.acquire("first");
    await clock.advance(1_000);
    await Promise.all(Array.from({ length: 700 }, (_, index) => locks.acquire(`k${index}`)));
    await clock.advance(9_000);
    assert.deepEqual(sizes, [500]);
  });

  test("a waiting claim that is rechecked often does not make others renew more often", async () => {
    const clock = new FakeClock();
    const driver = memory({ store: memoryStore(clock) });
    let renewalsOfHeld = 0;
    const recheckOften = (answer: Answer): Answer =>
      answer.state === "waiting" ? { ...answer, recheckMs: 250 } : answer;
    const polled: Driver = {
      ...driver,
      claim: async (claim) => recheckOften(await driver.claim(claim)),
      renew: async (claims) => {
        renewalsOfHeld += claims.filter(({ locks }) => locks[0].key === "held").length;
        return (await driver.renew(claims)).map((answer) => answer && recheckOften(answer));
      },
    };
    const others = createLocks(driver, { clock, ttl: "10m" });
    const locks = createLocks(polled, { clock, ttl: "30s" });
    await others.acquire("wanted");
    await locks.acquire("held");
    const wanted = assert.rejects(locks.acquire("wanted", { wait: "2m" }), { code: "LOCK_TIMEOUT" });
    await clock.advance(90_000);
    assert.ok(renewalsOfHeld <= 10, `${renewalsOfHeld} renewals in three leases`);
    await clock.advance(40_000);
    await wanted;
  });

  test("each part of the store is asked in its own calls, and a hanging part delays no other", async () => {
    const clock = new FakeClock();
    const driver = memory({ store: memoryStore(clock) });
    const renewedKeys: string[] = [];
    const shardOf = ({ locks }: Claim): string => locks[0].key.slice(0, 1);
    const sharded: Driver = {
      ...driver,
      shardOf,
      renew: (claims) => {
        renewedKeys.push(
          claims
            .map(({ locks }) => locks[0].key)
            .sort()
            .join(" "),
        );
        return shardOf(claims[0] as Claim) === "b" ? new Promise(() => undefined) : driver.renew(claims);
      },
      release: (releases) => {
        assert.equal(new Set(releases.map(({ claim }) => shardOf(claim))).size, 1);
        return driver.release(releases);
      },
    };
    const locks = createLocks(sharded, { clock, ttl: "9s" });
    const [a1, b1, a2] = [await locks.acquire("a1"), await locks.acquire("b1"), await locks.acquire("a2")];
    await clock.advance(3_000);
    assert.deepEqual(renewedKeys.toSorted(), ["a1 a2", "b1"]);
    await clock.advance(6_000);
    assert.deepEqual(
      [a1, b1, a2].map(({ signal }) => signal.aborted),
      [false, true, false],
    );
    assert.deepEqual(await Promise.all([a1, b1, a2].map((lock) => lock.release())), [true, false, true]);
    await locks.close();
  });

  test("a claim left out of an answer is asked about again; the others have their answers", async () => {
    const clock = new FakeClock();
    const driver = memory({ store: memoryStore(clock) });
    const partialDriver: Driver = {
      ...driver,
      renew: async (claims) => {
        const answers = await driver.renew(claims);
        return answers.map((answer, index) => (claims[index]?.locks[0].key === "quiet" ? undefined : answer));
      },
    };
    const locks = createLocks(partialDriver, { clock, ttl: "9s" });
    const events: string[] = [];
    locks.on("jeopardy", ({ keys }) => events.push(`jeopardy ${keys[0]}`));
    locks.on("lost", ({ keys }) => events.push(`lost ${keys[0]}`));
    const answeredLock = await locks.acquire("told");
    const silentLock = await locks.acquire("quiet");
    await clock.advance(9_000);
    assert.deepEqual(events, ["jeopardy quiet", "lost quiet"]);
    answeredLock.throwIfLost();
    assert.deepEqual([await answeredLock.release(), await silentLock.release()], [true, false]);
    await locks.close();
  });

  test("renew: false sets no timer while held", async () => {
    const fixture = createFixture({ ttl: "10s", renew: false });
    const lock = await fixture.locks.acquire("k");
    await fixture.clock.advance(5_000);
    assert.equal(fixture.calls.renew, 0);
    assert.equal(fixture.clock.pendingTimers, 0);
    assert.equal(await lock.release(), true);
  });
});

describe("a machine that slept", () => {
  test("longer than the lease: the lock is unconfirmed until the store answers", async () => {
    const fixture = createFixture({ ttl: "10s" });
    const events: number[] = [];
    fixture.locks.on("clockStep", ({ byMs }) => events.push(byMs));
    const lock = await fixture.locks.acquire("k");
    fixture.clock.suspend(60_000);
    // before any timer or answer had its turn
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST" });
    assert.equal(lock.signal.aborted, false);
    await fixture.clock.advance(0);
    // the store's clock slept too here, so the store answers that the claim is held
    lock.throwIfLost();
    assert.equal(lock.signal.aborted, false);
    assert.deepEqual(events, [60_000]);
    assert.equal(await lock.release(), true);
  });

  test("longer than the lease, and cannot reach the store: the lock is lost", async () => {
    const fixture = createFixture({ ttl: "10s" });
    const lock = await fixture.locks.acquire("k");
    fixture.isCut = true;
    fixture.clock.suspend(60_000);
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST" });
    await fixture.clock.advance(10_000);
    assert.equal(lock.signal.aborted, true);
  });

  test("only briefly: the lock stays, and the store is asked", async () => {
    const fixture = createFixture({ ttl: "10s" });
    const lock = await fixture.locks.acquire("k");
    fixture.clock.suspend(1_000);
    lock.throwIfLost();
    await fixture.clock.advance(0);
    assert.equal(fixture.calls.renew, 1);
  });

  test("is noticed by throwIfLost() although the wall clock was set back by as much just before", async () => {
    const fixture = createFixture({ ttl: "10s" });
    const events: number[] = [];
    fixture.locks.on("clockStep", ({ byMs }) => events.push(byMs));
    const lock = await fixture.locks.acquire("k");
    await fixture.clock.advance(100);
    fixture.clock.wallOffsetMs -= 60_000;
    fixture.clock.suspend(60_000);
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST" });
    assert.deepEqual(events, [60_000]);
    await fixture.clock.advance(0);
    lock.throwIfLost();
    assert.equal(await lock.release(), true);
  });

  test("is counted once, although two clocks report the sleep", async () => {
    const fixture = createFixture({ ttl: "10s" });
    const events: number[] = [];
    fixture.locks.on("clockStep", ({ byMs }) => events.push(byMs));
    const lock = await fixture.locks.acquire("k");
    for (const beforeMs of [0, 5, 100]) {
      await fixture.clock.advance(beforeMs);
      fixture.clock.suspend(3_000);
      lock.throwIfLost();
      await fixture.clock.advance(100);
      lock.throwIfLost();
    }
    assert.deepEqual(events, [3_000, 3_000, 3_000]);
    assert.equal(await lock.release(), true);
  });

  test("a wall clock that was set costs one round trip and nothing else", async () => {
    const fixture = createFixture({ ttl: "10s" });
    const lock = await fixture.locks.acquire("k");
    fixture.clock.wallOffsetMs += 3_600_000;
    assert.throws(() => lock.throwIfLost(), { code: "LOCK_LOST" });
    await fixture.clock.advance(0);
    lock.throwIfLost();
    fixture.clock.wallOffsetMs -= 7_200_000;
    lock.throwIfLost();
    assert.equal(lock.signal.aborted, false);
    assert.equal(await lock.release(), true);
  });
});

describe("a store whose clock steps", () => {
  test("puts held locks in jeopardy until they are confirmed, reported once each", async () => {
    const clock = new FakeClock();
    const driver = memory({ store: memoryStore(clock) });
    let aheadMs = 0;
    const locks = createLocks(
      {
        ...driver,
        renew: async (claims) => {
          const answers = await driver.renew(claims);
          return answers.map((answer) =>
            answer === undefined || answer.state === "none"
              ? answer
              : { ...answer, storeTimeMs: clock.wall() + aheadMs },
          );
        },
      },
      { clock, ttl: "9s" },
    );
    const events: string[] = [];
    locks.on("jeopardy", ({ keys }) => events.push(`jeopardy ${keys[0]}`));
    locks.on("restored", ({ keys }) => events.push(`restored ${keys[0]}`));
    locks.on("clockStep", ({ byMs, source }) => events.push(`${source} ${byMs}`));
    const held = [await locks.acquire("a"), await locks.acquire("b")];
    await clock.advance(3_000);
    assert.deepEqual(events, []);
    aheadMs = 60_000;
    await clock.advance(3_000);
    assert.deepEqual(events, ["store 60000", "jeopardy a", "jeopardy b", "restored a", "restored b"]);
    await clock.advance(9_000);
    assert.equal(events.length, 5);
    for (const lock of held) assert.equal(await lock.release(), true);
    await locks.close();
  });
});

describe("a wait", () => {
  test("ends exactly when its time has passed, not before", async () => {
    const fixture = createFixture();
    const lock = await fixture.locks.acquire("k");
    let failed: unknown = null;
    fixture.locks
      .mutex("k")
      .acquire({ wait: "5s" })
      .catch((error: unknown) => {
        failed = error;
      });
    await fixture.clock.advance(4_999);
    assert.equal(failed, null);
    await fixture.clock.advance(1);
    assert.equal((failed as { code: string } | null)?.code, "LOCK_TIMEOUT");
    assert.equal(await lock.release(), true);
    assert.deepEqual(await fixture.locks.list(), []);
  });

  test("while the store is down ends with StoreError, whose cause is the error of its client", async () => {
    const fixture = createFixture();
    await (await fixture.locks.acquire("warm")).release();
    const events: string[] = [];
    fixture.locks.on("storeDown", () => events.push("down"));
    fixture.locks.on("storeUp", () => events.push("up"));
    fixture.isCut = true;
    let failed: Error | null = null;
    fixture.locks.acquire("k", { wait: "5s" }).catch((error: Error) => {
      failed = error;
    });
    await assert.rejects(fixture.locks.tryAcquire("k2"), { code: "LOCK_STORE_FAILED" });
    await fixture.clock.advance(5_000);
    assert.equal((failed as unknown as { code: string }).code, "LOCK_STORE_FAILED");
    assert.match(String(((failed as unknown as Error).cause as Error).message), /cut off/);
    fixture.isCut = false;
    await fixture.clock.advance(60_000);
    assert.equal((await fixture.locks.acquire("k3")).keys[0], "k3");
    assert.deepEqual(events, ["down", "up"]);
  });
});
