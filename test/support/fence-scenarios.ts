/** The scenarios of fence(), for every database and isolation level. What they claim they read from the tables. */

import { expect, test } from "vitest";
import type { LockGrant } from "../../src/client/lock.ts";
import { LockLostError } from "../../src/errors.ts";
import type { FencedLock, FenceOptions } from "../../src/fencing/index.ts";
import { createFenceTable, fence } from "../../src/fencing/index.ts";
import type { Locks } from "../../src/index.ts";
import { until } from "../../src/testing/until.ts";
import { seededRandom } from "./seeded-random.ts";

const WITHIN = 10_000;
/** Longer than any test. */
const LEASE_MS = 60_000;

/** One connection with an open transaction. */
export interface TestTransaction {
  /** What a user would pass to fence(). */
  readonly handle: unknown;
  query(text: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /** Is a statement of this connection waiting for a lock of the database? */
  isBlocked(): Promise<boolean>;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

export interface FenceDatabase {
  /** A pool, or a connection outside a transaction. */
  readonly pool: unknown;
  /** The level in SQL, as begin() takes it. */
  readonly levels: readonly string[];
  /** Does the database show a transaction the newest commits only? Then others get conflicts. */
  isSnapshot(level: string): boolean;
  begin(level: string): Promise<TestTransaction>;
  query(text: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

type Mode = "exclusive" | "shared";

/** A lock as fence() sees it. */
export function createTestLock(
  token: number | bigint,
  mode: Mode = "exclusive",
  keys: readonly string[] = ["k"],
): FencedLock {
  const grants = keys.map(
    (key): LockGrant => ({
      key,
      storeKey: key,
      token: BigInt(token),
      isExclusive: mode === "exclusive",
      tag: "aaaaaaaaaa",
    }),
  );
  return { grants, remainingMs: LEASE_MS, throwIfLost: () => undefined };
}

/** A lock with less left of its lease. */
export function createShortLock(token: number, remainingMs: number): FencedLock {
  return { ...createTestLock(token), remainingMs };
}

/** Registers the tests that every database passes. */
export function describeFence(database: () => FenceDatabase, levels: readonly string[]): void {
  for (const level of levels) {
    test(`${level}: a holder that comes after a later one is refused, at every stopping point`, async () => {
      const { begin, query } = database();
      await startAfresh(database());
      // it stopped before its transaction, or inside it, before its fence
      const inside = await begin(level);
      await inside.query("select * from other");
      await commitFenced(database(), level, 20, "later");
      await expect(run(inside, 10, "earlier")).rejects.toThrow(
        expect.objectContaining({ code: expectRefusal(database(), level) }),
      );
      await inside.rollback();
      await expect(commitFenced(database(), level, 10, "earlier")).rejects.toMatchObject({ code: "LOCK_STALE" });
      expect(await query("select who from data")).toEqual([{ who: "later" }]);
      await commitFenced(database(), level, 20, "again");
      await commitFenced(database(), level, 30, "next");
      expect(await readTokens(database())).toEqual(["30"]);
    });

    test(`${level}: one that fenced in time commits, and the next one's fence waits for it`, async () => {
      const { begin, query } = database();
      await startAfresh(database());
      const earlier = await begin(level);
      await run(earlier, 10, "earlier");
      const later = await begin(level);
      let isDone = false;
      const fencing = run(later, 20, "later").finally(() => {
        isDone = true;
      });
      fencing.catch(() => undefined);
      await until(() => later.isBlocked(), { within: WITHIN, what: "the later fence to wait" });
      expect(isDone).toBe(false);
      await earlier.commit();
      const outcome = await fencing.then(() => later.commit()).catch((error: { code: string }) => error.code);
      if (outcome !== undefined) {
        expect([outcome, database().isSnapshot(level)]).toEqual(["LOCK_FENCE_CONFLICT", true]);
        await later.rollback();
        await commitFenced(database(), level, 20, "later");
      }
      expect(await query("select who from data order by seq")).toEqual([{ who: "earlier" }, { who: "later" }]);
      await expect(commitFenced(database(), level, 10, "again")).rejects.toMatchObject({ code: "LOCK_STALE" });
    });

    test(`${level}: readers neither refuse nor block each other, and order themselves with writers`, async () => {
      const { begin } = database();
      await startAfresh(database());
      await commitFenced(database(), level, 5, "writer");
      await warmShared(database(), level);
      const readers = [await begin(level), await begin(level), await begin(level)];
      // the later first: all are open at once
      for (const [index, token] of [
        [0, 20],
        [1, 10],
        [2, 30],
      ] as const) {
        await fence(readers[index]?.handle, createTestLock(token, "shared"));
      }
      const writer = await begin(level);
      // its snapshot is from before the readers' commits
      await writer.query("select * from other");
      const writing = run(writer, 25, "late writer");
      writing.catch(() => undefined);
      await until(() => writer.isBlocked(), { within: WITHIN, what: "the writer to wait for the readers" });
      for (const reader of readers) await reader.commit();
      await expect(writing).rejects.toThrow(
        expect.objectContaining({ code: expect.stringMatching(/LOCK_STALE|LOCK_FENCE_CONFLICT/) }),
      );
      await writer.rollback();
      await expect(commitFenced(database(), level, 25, "late writer")).rejects.toMatchObject({ code: "LOCK_STALE" });
      await commitFenced(database(), level, 40, "writer");
      await expect(commitFenced(database(), level, 30, "reader", "shared")).rejects.toMatchObject({
        code: "LOCK_STALE",
      });
      await commitFenced(database(), level, 50, "reader", "shared");
    });

    test(`${level}: a reader that comes beside a later writer waits for it, and is refused`, async () => {
      const { begin } = database();
      await startAfresh(database());
      await warmShared(database(), level);
      const writer = await begin(level);
      await run(writer, 30, "later writer");
      const reader = await begin(level);
      const reading = run(reader, 20, "reader", "shared");
      reading.catch(() => undefined);
      await until(() => reader.isBlocked(), { within: WITHIN, what: "the reader to wait for the writer" });
      await writer.commit();
      await expect(reading).rejects.toThrow(
        expect.objectContaining({ code: expect.stringMatching(/LOCK_STALE|LOCK_FENCE_CONFLICT/) }),
      );
      await reader.rollback();
    });

    test(`${level}: a first reader on a new connection refuses a writer with an older snapshot`, async () => {
      const { begin } = database();
      await startAfresh(database());
      await commitFenced(database(), level, 5, "writer");
      const writer = await begin(level);
      await writer.query("select * from other");
      await commitFenced(database(), level, 30, "reader", "shared");
      await expect(run(writer, 25, "late writer")).rejects.toThrow(
        expect.objectContaining({ code: expect.stringMatching(/LOCK_STALE|LOCK_FENCE_CONFLICT/) }),
      );
      await writer.rollback();
      await expect(commitFenced(database(), level, 25, "late writer")).rejects.toMatchObject({ code: "LOCK_STALE" });
    });

    test(`${level}: random holders commit in the order of their tokens`, { timeout: 60_000 }, async () => {
      await startAfresh(database());
      await runRandomHolders(database(), level, 8);
      const rows = await database().query("select token, mode from log order by seq");
      const log = rows.map(({ token, mode }) => ({ token: Number(token), mode }));
      expect(log.length).toBeGreaterThan(10);
      expect(findInversions(log)).toEqual([]);
    });
  }
}

/** Registers what does not depend on the isolation level. */
export function describeFenceArguments(database: () => FenceDatabase, otherKeys: readonly string[]): void {
  test("keys are compared byte by byte, and several are fenced in one transaction", async () => {
    const { begin, levels } = database();
    await startAfresh(database());
    const level = levels[0] as string;
    const one = await begin(level);
    await fence(one.handle, createTestLock(50, "exclusive", ["k", ...otherKeys]));
    await one.commit();
    for (const key of otherKeys) {
      const earlier = await begin(level);
      await expect(fence(earlier.handle, createTestLock(40, "exclusive", [key]))).rejects.toMatchObject({
        keys: [key],
      });
      await earlier.rollback();
    }
    const other = await begin(level);
    await fence(other.handle, createTestLock(1, "exclusive", ["K", "k ", "kk", "é"]));
    await other.commit();
  });

  test("tokens are exact up to the largest bigint", async () => {
    await startAfresh(database());
    const level = database().levels[0] as string;
    await commitFenced(database(), level, 2n ** 63n - 1n, "one");
    await commitFenced(database(), level, 2n ** 63n - 1n, "two");
    await expect(commitFenced(database(), level, 2n ** 63n - 2n, "three")).rejects.toMatchObject({
      code: "LOCK_STALE",
    });
  });

  test("refused before anything is sent: a lost lock, no transaction, wrong arguments", async () => {
    await startAfresh(database());
    const { begin, levels, pool } = database();
    const transaction = await begin(levels[0] as string);
    const loss = new LockLostError("lost", "expired");
    const lost = {
      ...createTestLock(10),
      throwIfLost: () => {
        throw loss;
      },
    };
    await expect(fence(transaction.handle, lost)).rejects.toBe(loss);
    await expect(fence(pool, createTestLock(10))).rejects.toThrow(/tx must be inside a transaction/);
    await expect(fence({}, createTestLock(10))).rejects.toThrow(/tx must be a transaction/);
    await expect(fence(transaction.handle, createTestLock(10), { prefix: "A b" })).rejects.toThrow(/prefix must be/);
    await expect(fence(transaction.handle, createTestLock(10), { wait: 1 } as FenceOptions)).rejects.toThrow(
      /no option/,
    );
    await expect(fence(transaction.handle, undefined as never)).rejects.toThrow(/lock must be/);
    await transaction.commit();
    expect(await readTokens(database())).toEqual([]);
  });

  test("without its table the error says what creates it", async () => {
    const transaction = await database().begin(database().levels[0] as string);
    await expect(fence(transaction.handle, createTestLock(10), { prefix: "absent" })).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringMatching(/absent_1_fences.* does not exist: run .*fenceMigration/),
    });
    await transaction.rollback();
  });
}

/** The fence has a row of its own: one on the row of the claim would block its renewal, and the calls that remove it. */
export async function expectLockRenewedDuringFence(locks: Locks, database: FenceDatabase): Promise<void> {
  await startAfresh(database);
  const ttlMs = 900;
  const lock = await locks.acquire("k", { ttl: ttlMs });
  const transaction = await database.begin("read committed");
  await fence(transaction.handle, lock, { idleTimeout: false });
  const fencedAt = performance.now();
  await until(() => performance.now() - fencedAt > 2 * ttlMs && lock.remainingMs > 0, {
    within: WITHIN,
    what: "a lease longer than the first",
  });
  expect(await locks.tryAcquire("k")).toBeNull();
  await transaction.query("insert into data (who) values ('late')");
  await transaction.commit();
  expect(lock.signal.aborted).toBe(false);
  expect(await lock.release()).toBe(true);
  await locks.close();
}

async function startAfresh(database: FenceDatabase): Promise<void> {
  await createFenceTable(database.pool);
  await createFenceTable(database.pool);
  for (const table of ["holdfast_1_fences", "data", "log"]) await database.query(`delete from ${table}`);
}

/** So that each connection of the pool has its row: the fast path. */
async function warmShared(database: FenceDatabase, level: string): Promise<void> {
  const all = [await database.begin(level), await database.begin(level), await database.begin(level)];
  for (const one of all) {
    await fence(one.handle, createTestLock(6, "shared"));
    await one.commit();
  }
}

async function run(
  transaction: TestTransaction,
  token: number | bigint,
  who: string,
  mode: Mode = "exclusive",
): Promise<void> {
  await fence(transaction.handle, createTestLock(token, mode));
  await transaction.query(`insert into data (who) values ('${who}')`);
}

async function commitFenced(
  database: FenceDatabase,
  level: string,
  token: number | bigint,
  who: string,
  mode: Mode = "exclusive",
): Promise<void> {
  const transaction = await database.begin(level);
  try {
    await run(transaction, token, who, mode);
  } catch (error) {
    await transaction.rollback();
    throw error;
  }
  await transaction.commit();
}

/** A transaction that has read before sees an old snapshot, which the database refuses before its token counts. */
function expectRefusal(database: FenceDatabase, level: string): unknown {
  return expect.stringMatching(database.isSnapshot(level) ? /LOCK_STALE|LOCK_FENCE_CONFLICT/ : /LOCK_STALE/);
}

async function readTokens({ query }: FenceDatabase): Promise<unknown[]> {
  const rows = await query("select token from holdfast_1_fences order by slot");
  return rows.map(({ token }) => String(token));
}

/** Holders with tokens in no order, some of which work at the same time. */
async function runRandomHolders(database: FenceDatabase, level: string, seed: number): Promise<void> {
  const random = seededRandom(seed);
  let highest = 10;
  const work = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn++) {
      highest++;
      // some come late
      const [token, mode] = [highest - random.int(4), random.chance(0.5) ? "exclusive" : "shared"] as const;
      const transaction = await database.begin(level);
      try {
        if (random.chance(0.5)) await transaction.query("select * from other");
        await fence(transaction.handle, createTestLock(token, mode));
        await transaction.query(`insert into log (token, mode) values (${token}, '${mode}')`);
        await transaction.commit();
      } catch (error) {
        const { code } = error as { readonly code: string };
        if (code !== "LOCK_STALE" && code !== "LOCK_FENCE_CONFLICT" && !isCommitConflict(code)) throw error;
        await transaction.rollback();
      }
    }
  };
  await Promise.all([work(), work(), work(), work()]);
}

/** The database may refuse what came after the fence, too. */
function isCommitConflict(code: string): boolean {
  return ["40001", "40P01", "ER_LOCK_DEADLOCK", "ER_CHECKREAD", "SQLITE_BUSY"].includes(code);
}

interface Entry {
  readonly token: number;
  readonly mode: unknown;
}

/** Pairs that exclude each other, and committed against the order of their tokens. */
function findInversions(log: readonly Entry[]): (readonly [Entry, Entry])[] {
  return log.flatMap((first, index) =>
    log
      .slice(index + 1)
      .filter((second) => second.token < first.token && (first.mode === "exclusive" || second.mode === "exclusive"))
      .map((second) => [first, second] as const),
  );
}
