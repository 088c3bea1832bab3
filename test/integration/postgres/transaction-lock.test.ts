// lockInTransaction() in transactions of pg and postgres.js, on a real server.

import { createHash } from "node:crypto";
import Database from "libsql";
import pg from "pg";
import postgresJs from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { UnsupportedError } from "../../../src/errors.ts";
import { FenceConflictError, lockInTransaction } from "../../../src/fencing/index.ts";
import { until } from "../../../src/testing/until.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const WAITING = "select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted";

interface TestClient {
  query(text: string, values?: readonly unknown[]): Promise<{ readonly rows: Readonly<Record<string, unknown>>[] }>;
  on(event: "error", listener: () => void): void;
  release(isBroken?: boolean): void;
}

interface TestPool extends TestClient {
  connect(): Promise<TestClient>;
  end(): Promise<void>;
}

withPostgres((server) => {
  let url: string;
  let pool: TestPool;
  /** Another one for each test: the server ends the connections of the test before a little later. */
  let key: string;
  let keyCount = 0;

  beforeAll(async () => {
    url = (await server().freshDatabase()).url;
    pool = new pg.Pool({ connectionString: url, max: 6 }) as unknown as TestPool;
    await pool.query("create table counter (n int)");
  });

  afterAll(() => pool?.end());

  beforeEach(() => {
    key = `key ${++keyCount}`;
  });

  async function begin(level = "read committed"): Promise<TestClient> {
    const tx = await pool.connect();
    tx.on("error", () => undefined);
    // a release ends its transaction
    onTestFinished(() => tx.release(true));
    await tx.query(`begin isolation level ${level}`);
    return tx;
  }

  const countWaiting = async (): Promise<number> => Number((await pool.query(WAITING)).rows[0]?.n);

  test("a key is locked until commit, and free again afterwards", async () => {
    const [one, other] = [await begin(), await begin()];
    expect(await lockInTransaction(one, key)).toBe(true);
    expect(await lockInTransaction(other, key, { wait: false })).toBe(false);
    expect(await lockInTransaction(other, "another key", { wait: false })).toBe(true);
    await one.query("commit");
    expect(await lockInTransaction(other, key, { wait: false })).toBe(true);
  });

  test("a rollback and a broken connection free the key", async () => {
    const [one, other] = [await begin(), await begin()];
    await lockInTransaction(one, key);
    await one.query("rollback");
    expect(await lockInTransaction(other, key, { wait: false })).toBe(true);
    const third = await begin();
    const waiting = lockInTransaction(third, key);
    await until(async () => (await countWaiting()) === 1, { within: 5_000, what: "the waiting transaction" });
    await pool.query("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted");
    expect(await waiting).toBe(true);
  });

  test("a transaction waits for the one before it, and reads what it has committed", async () => {
    await pool.query("delete from counter; insert into counter values (0)");
    const addOne = async (): Promise<void> => {
      const tx = await pool.connect();
      try {
        await tx.query("begin");
        await lockInTransaction(tx, "counter");
        const { rows } = await tx.query("select n from counter");
        await tx.query("update counter set n = $1", [Number(rows[0]?.n) + 1]);
        await tx.query("commit");
      } finally {
        tx.release();
      }
    };
    await Promise.all(Array.from({ length: 60 }, addOne));
    expect((await pool.query("select n from counter")).rows).toEqual([{ n: 60 }]);
  });

  test("the number of a key is the first 64 bits of its SHA-256", async () => {
    const tx = await begin();
    await lockInTransaction(tx, "ключ 😀");
    const number = createHash("sha256").update("ключ 😀").digest().readBigInt64BE();
    const { rows } = await pool.query("select pg_try_advisory_lock($1) as ok", [String(number)]);
    expect(rows).toEqual([{ ok: false }]);
  });

  test("keyToLock: the numbers of a running system exclude in both directions, pairs apart from bigints", async () => {
    const session = new pg.Client(url) as unknown as TestPool;
    await session.connect();
    onTestFinished(() => session.end());
    await session.query("select pg_advisory_lock(42), pg_advisory_lock(-7, 9), pg_advisory_lock(-5)");
    const tx = await begin();
    const lock = (keyToLock: () => bigint | readonly [number, number]): Promise<boolean> =>
      lockInTransaction(tx, key, { wait: false, keyToLock });
    expect(await lock(() => 42n)).toBe(false);
    expect(await lock(() => [-7, 9])).toBe(false);
    expect(await lock(() => -5n)).toBe(false);
    expect(await lock(() => [0, 42])).toBe(true);
    expect((await session.query("select pg_try_advisory_lock(0, 42) as ok")).rows).toEqual([{ ok: false }]);
    for (const wrong of [2n ** 63n, [1], [1, 2 ** 31], [1, 2, 3], 42, null]) {
      await expect(lock(() => wrong as never)).rejects.toThrow(/keyToLock must return/);
    }
    // nothing was sent that would have failed the transaction
    expect(await lock(() => 2n ** 63n - 1n)).toBe(true);
  });

  test.each(["repeatable read", "serializable"])(
    "%s is refused: the transaction would read the state from before it had the lock",
    async (level) => {
      const tx = await begin(level);
      await expect(lockInTransaction(tx, key)).rejects.toThrow(/^tx must be at read committed/);
      const other = await begin();
      expect(await lockInTransaction(other, key, { wait: false })).toBe(true);
    },
  );

  test("lock_timeout of the session ends the wait", async () => {
    const [one, other] = [await begin(), await begin()];
    await lockInTransaction(one, key);
    await other.query("set local lock_timeout = '50ms'");
    await expect(lockInTransaction(other, key)).rejects.toBeInstanceOf(FenceConflictError);
  });

  describe("outside a transaction it is refused", () => {
    test("by pg", async () => {
      const client = await pool.connect();
      onTestFinished(() => client.release());
      await expect(lockInTransaction(client, key)).rejects.toThrow(/^tx must be inside a transaction/);
      await expect(lockInTransaction(pool, key)).rejects.toThrow(/^tx must be inside a transaction/);
    });

    test("by postgres.js, in whose transactions it works", async () => {
      const sql = postgresJs(url, { max: 2 });
      onTestFinished(() => sql.end());
      await expect(lockInTransaction(sql, key)).rejects.toThrow(/^tx must be inside a transaction/);
      await sql.begin(async (tx) => {
        expect(await lockInTransaction(tx, key)).toBe(true);
        expect(await lockInTransaction(await begin(), key, { wait: false })).toBe(false);
      });
    });
  });

  test("a handle that does not show whether a transaction is open: the database is asked", async () => {
    const sql = postgresJs(url, { max: 1, onnotice: () => undefined });
    onTestFinished(() => sql.end());
    const reserved = await sql.reserve();
    await expect(lockInTransaction(reserved, key)).rejects.toThrow(/^tx must be inside a transaction/);
    await reserved`begin`;
    expect(await lockInTransaction(reserved, key)).toBe(true);
    expect(await lockInTransaction(await begin(), key, { wait: false })).toBe(false);
    await reserved`commit`;
    await expect(lockInTransaction(reserved, key)).rejects.toThrow(/^tx must be inside a transaction/);
    reserved.release();
  });

  test("a waiting transaction that is cancelled has no lock", async () => {
    const [one, other] = [await begin(), await begin()];
    await lockInTransaction(one, key);
    // before the cancellation: the error may arrive earlier than the answer of pg_cancel_backend
    const cancelled = expect(lockInTransaction(other, key)).rejects.toThrow(/cancel/);
    await until(async () => (await countWaiting()) === 1, { within: 5_000, what: "the waiting transaction" });
    await pool.query("select pg_cancel_backend(pid) from pg_locks where locktype = 'advisory' and not granted");
    await cancelled;
    expect(await countWaiting()).toBe(0);
  });

  test("wrong arguments are TypeErrors, and another database is an UnsupportedError", async () => {
    const tx = await begin();
    await expect(lockInTransaction(tx, "")).rejects.toThrow(/^key must not be empty/);
    await expect(lockInTransaction(tx, key, { wait: "5s" as never })).rejects.toThrow(/^wait must be/);
    await expect(lockInTransaction(tx, key, { timeout: 1 } as never)).rejects.toThrow(/no option "timeout"/);
    await expect(lockInTransaction({}, key)).rejects.toThrow(/^tx must be/);
    const sqlite = new Database(":memory:");
    onTestFinished(() => void sqlite.close());
    sqlite.exec("begin");
    await expect(lockInTransaction(sqlite, key)).rejects.toBeInstanceOf(UnsupportedError);
  });
});
