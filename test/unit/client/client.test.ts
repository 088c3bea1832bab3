// No lock is granted whose lease is over by the client's clock. Checked in the store's table, not only in the locks.

import assert from "node:assert/strict";
import { describe, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { ClientLogger } from "../../../src/client/logger.ts";
import type { LocksOptions } from "../../../src/client/options.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { until } from "../../../src/testing/until.ts";
import { withTraits } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const LATE_MS = 1_500;
const REMAINING_MS = 1_000;

interface Fixture {
  readonly clock: FakeClock;
  readonly locks: Locks;
  /** Another client, with calls that are not late. */
  readonly other: Locks;
  /** The next claims, up to this number, are answered late, with this little of the lease left. */
  lateClaims: number;
  remainingMs: number;
  /** The next renewals give no answer for this key. */
  silentKey: string | null;
  /** Calls of renew so far. */
  renewals: number;
  /** The holder of the key, in the store's own table. */
  holders(key: string): ClaimId[];
  /** The number of claims in the table. */
  size(): number;
}

function createFixture(options: LocksOptions = {}, manyKeys = true): Fixture {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const table = tableOf(store);
  const inner = memory({ store });
  const claimLate = async (claim: Claim): Promise<Answer> => {
    const answer = await inner.claim(claim);
    if (answer.state !== "held" || fixture.lateClaims === 0) return answer;
    fixture.lateClaims--;
    await new Promise<void>((resolve) => clock.timer(resolve).set(clock.now() + LATE_MS));
    return { ...answer, remainingMs: fixture.remainingMs };
  };
  const renew = async (claims: readonly Claim[]): Promise<(Answer | undefined)[]> => {
    fixture.renewals++;
    const answers = await inner.renew(claims);
    return answers.map((answer, index) =>
      (claims[index] as Claim).locks[0].key === fixture.silentKey ? undefined : answer,
    );
  };
  const fixture = {
    clock,
    lateClaims: 0,
    remainingMs: REMAINING_MS,
    silentKey: null as string | null,
    renewals: 0,
    locks: createLocks(delegate(inner, { ...withTraits(inner, { manyKeys }), claim: claimLate, renew }), {
      ...options,
      clock,
    }),
    other: createLocks(memory({ store }), { clock }),
    holders: (key: string) => {
      table.advance({ now: clock.now(), micros: Math.floor(clock.wall() * 1_000) });
      const entries = [...(table.queues.get(key)?.entries ?? [])];
      return entries.filter(({ isAdmitted }) => isAdmitted).map(({ record }) => record.claim.id);
    },
    size: () => table.records.size,
  };
  return fixture;
}

/** The outcome, and its time. */
async function settledOutcome<T>(
  promise: Promise<T>,
): Promise<{ value?: T; error?: { code?: string; message: string } }> {
  return promise.then(
    (value) => ({ value }),
    (error: { message: string }) => ({ error }),
  );
}

describe("a grant whose lease is over when it is answered", () => {
  test("is released and requested again, and the next grant is held", async () => {
    const fixture = createFixture();
    fixture.lateClaims = 2;
    const pendingLock = fixture.locks.acquire("k");
    await fixture.clock.advance(2 * LATE_MS + 1_000);
    const lock = await pendingLock;
    lock.throwIfLost();
    assert.ok(lock.remainingMs > 25_000);
    assert.equal(fixture.holders("k").length, 1);
    assert.equal(fixture.size(), 1, "nothing is left of the grants that came too late");
    assert.equal(await lock.release(), true);
    assert.equal(fixture.size(), 0);
  });

  test("is refused where the wait ends first, and nothing is left", async () => {
    const fixture = createFixture();
    fixture.lateClaims = Number.POSITIVE_INFINITY;
    const pendingLock = settledOutcome(fixture.locks.acquire("k", { wait: "4s" }));
    await fixture.clock.advance(6_000);
    const { error } = await pendingLock;
    assert.equal(error?.code, "LOCK_STORE_FAILED");
    assert.match(error.message, /"k": the store did not answer in time/);
    assert.equal(fixture.size(), 0);
  });

  test("is an error without a wait, not null, which would mean that the lock is held", async () => {
    for (const method of ["try", "once"] as const) {
      const fixture = createFixture();
      fixture.lateClaims = 1;
      const pendingLock = settledOutcome(
        method === "try" ? fixture.locks.tryAcquire("k") : fixture.locks.acquire("k", { wait: 0 }).then(() => null),
      );
      await fixture.clock.advance(LATE_MS);
      assert.equal((await pendingLock).error?.code, "LOCK_STORE_FAILED");
      assert.equal(fixture.size(), 0);
    }
  });

  test("is recognized when the machine slept for longer than the lease during the answer", async () => {
    const fixture = createFixture();
    Object.assign(fixture, { lateClaims: 1, remainingMs: 30_000 });
    const pendingLock = fixture.locks.acquire("k");
    await fixture.clock.advance(1);
    // this client's machine sleeps, not the store's: the store's lease is over, the client's clock has not moved
    fixture.clock.suspend(40_000);
    await fixture.clock.advance(LATE_MS);
    const lock = await pendingLock;
    assert.ok(lock.remainingMs > 25_000);
    assert.equal(fixture.holders("k").length, 1);
    await lock.release();
    assert.equal(fixture.size(), 0);
  });

  test("is released so that the next waiter has its turn", async () => {
    const fixture = createFixture();
    fixture.lateClaims = 1;
    const pendingLock = fixture.locks.acquire("k");
    await fixture.clock.advance(1);
    const laterLock = fixture.other.acquire("k");
    await fixture.clock.advance(LATE_MS);
    const lock = await laterLock;
    lock.throwIfLost();
    assert.equal(fixture.holders("k").length, 1);
    await lock.release();
    await fixture.clock.advance(10);
    await (await pendingLock).release();
    assert.equal(fixture.size(), 0);
  });
});

describe("several keys that are taken one at a time", () => {
  test("of which one is lost while another is awaited: all are requested again", async () => {
    const fixture = createFixture({ renew: false, ttl: "10s" }, false);
    const [blockingLock] = [await fixture.other.acquire("b")];
    const pendingLock = fixture.locks.all("a", "b").acquire();
    await fixture.clock.advance(12_000);
    await blockingLock.release();
    await fixture.clock.advance(10);
    const lock = await pendingLock;
    lock.throwIfLost();
    assert.deepEqual([fixture.holders("a").length, fixture.holders("b").length], [1, 1]);
    assert.equal(await lock.release(), true);
    assert.equal(fixture.size(), 0);
  });

  test("are refused at the end of the wait, and nothing is left", async () => {
    const fixture = createFixture({ renew: false, ttl: "10s" }, false);
    const blockingLock = await fixture.other.acquire("b");
    const pendingLock = settledOutcome(fixture.locks.all("a", "b").acquire({ wait: "13s" }));
    await fixture.clock.advance(12_000);
    fixture.lateClaims = Number.POSITIVE_INFINITY;
    await blockingLock.release();
    await fixture.clock.advance(30_000);
    assert.equal((await pendingLock).error?.code, "LOCK_TIMEOUT");
    assert.equal(fixture.size(), 0);
  });

  test("that join locks held before: when those are lost, the new lock is lost as well", async () => {
    const fixture = createFixture({ renew: false, ttl: "10s" }, false);
    const blockingLock = await fixture.other.acquire("b");
    const using = settledOutcome(fixture.locks.using("a", async () => fixture.locks.all("a", "b").acquire()));
    await fixture.clock.advance(12_000);
    await blockingLock.release();
    await fixture.clock.advance(10);
    assert.equal((await using).error?.code, "LOCK_LOST");
    assert.equal(fixture.size(), 0);
  });

  test("that are attached, one of them lost while the other is confirmed: no lock", async () => {
    const fixture = createFixture({ renew: false, ttl: "60s" }, false);
    const lock = await fixture.locks.all("a", "b").acquire();
    const reference = await lock.detach();
    fixture.silentKey = "b";
    const attachOutcome = settledOutcome(fixture.locks.attach(reference));
    await until(() => fixture.renewals > 0, { within: 5_000, what: "the question about both" });
    await fixture.clock.advance(54_100);
    fixture.silentKey = null;
    // it is asked about again within two seconds, and is unconfirmed until a complete lease has passed
    await fixture.clock.advance(2_500);
    assert.equal((await attachOutcome).error?.code, "LOCK_LOST");
    assert.equal(fixture.holders("b").length, 1, "whoever has the reference may try again");
  });
});

describe("keys that the store takes one by one", () => {
  test("an abort between two of them ends the wait, and releases the first", async () => {
    const driver = memory();
    const locks = createLocks({ ...driver, ...withTraits(driver, { manyKeys: false }) });
    const otherLock = await locks.acquire("b");
    const abort = new AbortController();
    // the grant of "a", before any request for "b"
    locks.on("acquired", ({ keys }) => keys[0] === "a" && abort.abort(new RangeError("enough")));
    await assert.rejects(locks.all("a", "b").acquire({ signal: abort.signal, wait: "2s" }), RangeError);
    assert.ok(await locks.tryAcquire("a"), "the first was given back");
    await otherLock.release();
    await locks.close();
  });
});

/** A store that knows only sessions, as ZooKeeper does. */
function sessionOnlyDriver(): Driver {
  const driver = memory();
  return delegate(driver, {
    ...withTraits(driver, { lease: { claim: false, sessionMs: 30_000 } }),
    claim: (claim) => driver.claim({ ...claim, ttlMs: 30_000 }),
  });
}

const SILENT: ClientLogger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

test("a ttl causes a warning only where one was given, and once per client", async () => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error): number => warnings.push(message);
  process.on("warning", onWarning);
  // warnings are emitted in a later turn
  const readWarnings = async (): Promise<string[]> => {
    await new Promise((resolve) => setImmediate(resolve));
    return warnings;
  };
  try {
    const sessionLocks = createLocks(sessionOnlyDriver());
    await (await sessionLocks.acquire("k")).release();
    await (await sessionLocks.acquire("k", { ttl: "session" })).release();
    expect(await readWarnings()).toEqual([]);
    const locksWithTtl = createLocks(sessionOnlyDriver(), { ttl: "10s" });
    await (await locksWithTtl.acquire("k")).release();
    await (await locksWithTtl.acquire("k", { ttl: "20s" })).release();
    expect(await readWarnings()).toEqual([expect.stringMatching(/has only session leases: ttl is ignored/)]);
    await (await sessionLocks.acquire("k", { ttl: "10s" })).release();
    expect(await readWarnings()).toHaveLength(2);
    const logged: string[] = [];
    const logger = { ...SILENT, warn: (_: object, message: string) => logged.push(message) };
    const loggingLocks = createLocks(sessionOnlyDriver(), { logger, ttl: "10s" });
    await (await loggingLocks.acquire("k")).release();
    expect(logged).toEqual([expect.stringMatching(/has only session leases: ttl is ignored/)]);
    expect(await readWarnings()).toHaveLength(2);
    await Promise.all([sessionLocks.close(), locksWithTtl.close(), loggingLocks.close()]);
  } finally {
    process.off("warning", onWarning);
  }
});

test("the reason a lock cannot be detached names the store, not an option that was not set", async () => {
  const locks = createLocks(sessionOnlyDriver());
  const lock = await locks.acquire("k", { ttl: "10m" });
  await expect(lock.detach()).rejects.toMatchObject({
    code: "LOCK_UNSUPPORTED",
    message: 'cannot detach "k": memory has only session leases: all locks end with the client\'s session',
  });
  await lock.release();
  await locks.close();
});

test("close() waits for a store that does not answer for 5 s in all", async () => {
  const clock = new FakeClock();
  const driver = memory({ store: memoryStore(clock) });
  const never = new Promise<never>(() => undefined);
  const locks = createLocks(delegate(driver, { renew: () => never, release: () => never }), { clock });
  await locks.acquire("held");
  const lost = await locks.acquire("lost", { maxHold: "1s" });
  await clock.advance(1_000);
  expect(lost.signal.aborted).toBe(true);
  let isClosed = false;
  const closing = locks.close().then(() => {
    isClosed = true;
  });
  await clock.advance(4_999);
  expect(isClosed).toBe(false);
  await clock.advance(1);
  await closing;
});
