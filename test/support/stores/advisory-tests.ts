/** What a database with advisory locks is put through, whichever it is. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Lock, Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { builtFile } from "../built-file.ts";
import { makeClaim } from "../claims.ts";
import { toDriverEvents } from "../driver-events.ts";
import { CREATE_COUNTER } from "./advisory-counter.ts";
import type { DatabaseServer, TestDatabase } from "./sql-database.ts";

const WORKER = builtFile("build/test/support/stores/advisory-worker.child.js");
const PROCESSES = 4;
const CALLERS = 16;
const TURNS = 2;
const SOON = { within: 5_000 };

interface DriverOptions {
  readonly sessionMs?: number;
  readonly maxWaitConnections?: number;
}

export interface AdvisoryServer {
  readonly server: () => DatabaseServer;
  /** A driver of this database, not open; the name of its connections is not that of others. */
  driver(database: TestDatabase, options: DriverOptions): Driver;
  /** The url of these locks for connect(). */
  lockUrl(database: TestDatabase): string | Promise<string>;
  /** The sessions of drivers of this database. */
  sessions(database: TestDatabase): Promise<readonly string[]>;
  /** How many idle connections each driver's pool keeps besides, since it was asked for its settings. */
  readonly poolConnections: number;
  /** The session that has the lock of this key. */
  holder(database: TestDatabase, key: string): Promise<string | null>;
  /** The sessions that wait for any lock of this database. */
  waiters(database: TestDatabase): Promise<readonly string[]>;
  kill(database: TestDatabase, session: string): Promise<void>;
  /** Releases all locks of the driver's sessions without its knowledge. */
  unlockBehindIts(driver: Driver): Promise<void>;
}

interface OpenDriver {
  readonly driver: Driver;
  readonly pushes: Map<string, Answer | undefined>;
}

export function registerAdvisoryTests(store: AdvisoryServer): void {
  let database: TestDatabase;
  const closers: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    database = await store.server().freshDatabase();
    for (const text of CREATE_COUNTER) await database.query(text);
  });

  afterEach(async () => {
    for (const close of closers.splice(0)) await close();
    // close() returns everything
    await until(async () => (await store.sessions(database)).length === 0, {
      ...SOON,
      what: "the end of its sessions",
    });
  });

  const openLocks = (options: LocksOptions = {}, driverOptions: DriverOptions = {}): Locks => {
    const locks = createLocks(store.driver(database, driverOptions), options);
    closers.push(() => locks.close());
    return locks;
  };

  const openDriver = async (options: DriverOptions = {}): Promise<OpenDriver> => {
    const driver = store.driver(database, options);
    const pushes: OpenDriver["pushes"] = new Map();
    await driver.open(
      toDriverEvents((id, answer) => {
        if (id !== null) pushes.set(id, answer);
      }),
    );
    closers.push(() => driver.close());
    return { driver, pushes };
  };

  const expectSessions = async (count: number, driverCount: number): Promise<void> =>
    expect(await store.sessions(database)).toHaveLength(count + driverCount * store.poolConnections);

  const sessionClaim = (key: string, overrides: Partial<Claim> = {}): Claim =>
    makeClaim(key, { ttlMs: "session", ...overrides });

  const waitForWaiters = (count: number): Promise<unknown> =>
    until(async () => (await store.waiters(database)).length === count, { ...SOON, what: `${count} waiting sessions` });

  const lossOf = (lock: Lock): Promise<unknown> =>
    new Promise((resolve) => lock.signal.addEventListener("abort", () => resolve(lock.signal.reason), { once: true }));

  test("locks that are free share one connection, and each that is waited for has one until its release", async () => {
    const [first, second] = [openLocks(), openLocks()];
    const held = await Promise.all(["a", "b", "c"].map((key) => first.acquire(key)));
    await expectSessions(1, 1);
    const waiting = Promise.all(["a", "b"].map((key) => second.acquire(key)));
    await waitForWaiters(2);
    await expectSessions(4, 2);
    for (const lock of held) expect(await lock.release()).toBe(true);
    const [one, other] = (await waiting) as [Lock, Lock];
    const holders = [await store.holder(database, "a"), await store.holder(database, "b")];
    expect(new Set(holders).size).toBe(2);
    expect(await one.release()).toBe(true);
    expect(await store.holder(database, "a")).toBeNull();
    expect(await other.release()).toBe(true);
  });

  test("the end of the shared connection tells all its holders at once, and nobody else", async () => {
    const [first, second] = [openLocks(), openLocks()];
    const [shared, alsoShared] = [await first.acquire("a"), await first.acquire("b")];
    const blocker = await second.acquire("c");
    const waits = first.acquire("c");
    await waitForWaiters(1);
    await blocker.release();
    const waitedFor = await waits;
    const losses = [lossOf(shared), lossOf(alsoShared)];
    await store.kill(database, (await store.holder(database, "a")) as string);
    expect(await Promise.all(losses)).toEqual([
      expect.objectContaining({ code: "LOCK_LOST" }),
      expect.objectContaining({ code: "LOCK_LOST" }),
    ]);
    expect(waitedFor.signal.aborted).toBe(false);
    // the server has ended the session: the key is free, for this client too
    await (await second.acquire("a", { wait: "5s" })).release();
    await (await first.acquire("a", { wait: "5s" })).release();
    const loss = lossOf(waitedFor);
    await store.kill(database, (await store.holder(database, "c")) as string);
    await loss;
    await waitedFor.release();
  });

  test("a wait whose connection ends goes on over another one", async () => {
    const [first, second] = [openLocks(), openLocks()];
    const held = await first.acquire("key");
    const waits = second.acquire("key");
    await waitForWaiters(1);
    const [before] = await store.waiters(database);
    await store.kill(database, before as string);
    await until(async () => ![before, undefined].includes((await store.waiters(database))[0]), {
      ...SOON,
      what: "another waiting session",
    });
    await held.release();
    expect(await (await waits).release()).toBe(true);
  });

  test("a lock that the session has lost is reported by its release", async () => {
    const driver = store.driver(database, {});
    const locks = createLocks(driver);
    closers.push(() => locks.close());
    const lock = await locks.acquire("key");
    await store.unlockBehindIts(driver);
    expect(await store.holder(database, "key")).toBeNull();
    expect(await lock.release()).toBe(false);
    await expect(locks.using("key", () => store.unlockBehindIts(driver))).rejects.toMatchObject({ code: "LOCK_LOST" });
  });

  test("a cancelled wait leaves no lock, no waiting session and, once nothing is locked, no connection of its own", async () => {
    const [first, second] = [openLocks(), openLocks()];
    for (let round = 0; round < 5; round++) {
      const held = await first.acquire("key");
      const abort = new AbortController();
      const waits = second.acquire("key", { signal: abort.signal });
      await waitForWaiters(1);
      abort.abort(new RangeError("enough"));
      await expect(waits).rejects.toThrow("enough");
      // in every second round the lock is free while the wait ends
      if (round % 2 === 0) await waitForWaiters(0);
      expect(await held.release()).toBe(true);
      await until(async () => (await store.holder(database, "key")) === null, { ...SOON, what: "the key to be free" });
      await waitForWaiters(0);
      await expectSessions(2, 2);
    }
  });

  test("a process that says nothing loses its locks when its session ends, and was told before", async () => {
    const sessionMs = 1_500;
    const [silent, other] = [await openDriver({ sessionMs }), await openDriver()];
    const [held, next] = [sessionClaim("key"), sessionClaim("key")];
    const claimedAt = performance.now();
    expect(await silent.driver.claim(held)).toMatchObject({ state: "held" });
    expect(await other.driver.claim(next)).toMatchObject({ state: "waiting" });
    await until(() => other.pushes.get(next.id)?.state === "held", { within: 10_000, what: "the grant of the next" });
    // what the core believes is nine tenths of it, from when the call was sent
    expect(performance.now() - claimedAt).toBeGreaterThan(sessionMs);
    expect(silent.pushes.get(held.id)).toEqual({ state: "none", reason: "expired" });
    expect(await silent.driver.renew([held])).toEqual([{ state: "none", reason: "expired" }]);
    expect(await other.driver.release([{ claim: next, hasUnansweredClaim: false }])).toEqual([true]);
  });

  test("beyond the bound of connections claims ask again, and are granted in the end", async () => {
    const [first, second] = [openLocks(), openLocks({}, { maxWaitConnections: 1 })];
    const held = await Promise.all(["a", "b", "c"].map((key) => first.acquire(key)));
    const waits = ["a", "b", "c"].map((key) => second.acquire(key));
    await waitForWaiters(1);
    for (const lock of held) await lock.release();
    for (const lock of await Promise.all(waits)) expect(await lock.release()).toBe(true);
    await expectSessions(3, 2);
  });

  test(`${PROCESSES * CALLERS} callers in ${PROCESSES} processes are inside one at a time`, async () => {
    const args = [WORKER, await store.lockUrl(database), database.url, String(CALLERS), String(TURNS)];
    const runs = Array.from({ length: PROCESSES }, () => promisify(execFile)(process.execPath, args));
    for (const { stdout } of await Promise.all(runs)) expect(JSON.parse(stdout)).toEqual({ overlaps: 0 });
    const [row] = await database.query("select inside, entered from counter");
    expect(row).toEqual({ inside: 0, entered: PROCESSES * CALLERS * TURNS });
  }, 60_000);

  describe("a server that is stopped", () => {
    test("tells its holders within a session, and the key is free when it goes on", async () => {
      const locks = openLocks({}, { sessionMs: 1_500 });
      const lock = await locks.acquire("key");
      const loss = lossOf(lock);
      store.server().signal("SIGSTOP");
      try {
        const stoppedAt = performance.now();
        expect(await loss).toMatchObject({ code: "LOCK_LOST" });
        expect(performance.now() - stoppedAt).toBeLessThan(10_000);
      } finally {
        store.server().signal("SIGCONT");
      }
      await lock.release();
      await (await locks.acquire("key", { wait: "10s" })).release();
    });
  });
}
