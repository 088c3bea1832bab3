// fence() in transactions of mysql2, on a real MariaDB, at each isolation level.

import type { Pool, PoolConnection } from "mysql2/promise";
import { createPool } from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createFenceTable, fence, fenceMigration, restoreIdleTimeout } from "../../../src/fencing/index.ts";
import { connect } from "../../../src/index.ts";
import type { FenceDatabase, TestTransaction } from "../../support/fence-scenarios.ts";
import {
  createShortLock,
  createTestLock,
  describeFence,
  describeFenceArguments,
  expectLockRenewedDuringFence,
} from "../../support/fence-scenarios.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

type Rows = Readonly<Record<string, unknown>>[];

const LEVELS = ["read committed", "repeatable read", "serializable"];
const SNAPSHOT_LEVEL = "repeatable read with snapshot isolation";

/** Above read committed two first readers of a key may deadlock: one of them gets the typed error, and the log is no fault. */
const TOLERANT = { settings: { "innodb-print-all-deadlocks": "OFF" } };

withMariaDb((server) => {
  let database: FenceDatabase;
  let pool: Pool;
  let url: string;

  beforeAll(async () => {
    ({ url } = await server().freshDatabase());
    pool = createPool({ uri: url, connectionLimit: 8 });
    await pool.query("create table data (seq int auto_increment primary key, who varchar(100))");
    await pool.query("create table log (seq int auto_increment primary key, token bigint, mode varchar(20))");
    await pool.query("create table other (n int)");
    database = {
      pool,
      levels: LEVELS,
      isSnapshot: (level) => level === SNAPSHOT_LEVEL,
      begin,
      query: async (text) => (await pool.query(text))[0] as Rows,
    };
  });

  afterAll(() => pool?.end());

  describeFence(() => database, [...LEVELS, SNAPSHOT_LEVEL]);

  test("a fenced transaction keeps neither the renewal of its own lock nor other claims waiting", async () => {
    await expectLockRenewedDuringFence(await connect(`${url}?silenceWarnings=durability`), database);
  });

  describeFenceArguments(() => database, ["a'b\\", "`; drop table data; --", "ключ 😀", "$1 ?"]);

  test.each(LEVELS)("%s: a holder that stands still blocks the next one for the rest of its lease", async (level) => {
    await database.query("delete from holdfast_1_fences");
    await database.query("delete from data");
    const stopped = await database.begin(level);
    await fence(stopped.handle, createShortLock(10, 1_900));
    await stopped.query("insert into data (who) values ('stopped')");
    const startedAt = performance.now();
    const next = await database.begin(level);
    await fence(next.handle, createTestLock(20));
    await next.commit();
    expect(performance.now() - startedAt).toBeLessThan(8_000);
    await expect(stopped.commit()).rejects.toThrow();
    expect(await database.query("select * from data")).toEqual([]);
  });

  describe("the idle time-out, which the session keeps", () => {
    test.each([
      [0, "exclusive", 60],
      [7_200, "shared", 60],
      [5, "exclusive", 5],
      [59, "shared", 59],
    ] as const)("of %i s becomes, for a lock that is %s, %i s until it is restored", async (own, mode, expected) => {
      const connection = await pool.getConnection();
      onTestFinished(() => connection.destroy());
      const read = async (): Promise<unknown> =>
        ((await connection.query("select @@session.idle_write_transaction_timeout as value"))[0] as Rows)[0]?.value;
      await connection.query(`set session idle_write_transaction_timeout = ${own}`);
      for (const token of [1_000, 1_001]) {
        await connection.beginTransaction();
        await fence(connection, createTestLock(token, mode), { idleTimeout: false, prefix: "holdfast" });
        expect(await read()).toBe(token === 1_000 ? own : expected);
        await fence(connection, createShortLock(token, 90_000)).catch(() => undefined);
        await fence(connection, createTestLock(token, mode));
        expect(await read()).toBe(expected);
        await connection.rollback();
      }
      await restoreIdleTimeout(connection);
      expect(await read()).toBe(own);
      await restoreIdleTimeout(connection);
      await connection.query("set session idle_write_transaction_timeout = 77");
      await restoreIdleTimeout(connection);
      expect(await read()).toBe(77);
    });
  });

  test("a session that shows no rows by itself (sql_select_limit = 0) refuses what is stale, and nothing else", async () => {
    const connection = await pool.getConnection();
    onTestFinished(() => connection.destroy());
    await database.query("delete from holdfast_1_fences");
    await connection.query("set sql_select_limit = 0");
    for (const [token, mode, isAccepted] of [
      [300, "shared", true],
      [299, "exclusive", false],
      [301, "exclusive", true],
      [300, "shared", false],
      [300, "exclusive", false],
      [302, "shared", true],
    ] as const) {
      await connection.beginTransaction();
      const fenced = fence(connection, createTestLock(token, mode)).then(() => true);
      const refused = fenced.catch((error: unknown) => {
        expect(error).toMatchObject({ code: "LOCK_STALE" });
        return false;
      });
      expect(await refused, `${mode} ${token}`).toBe(isAccepted);
      await connection.commit();
    }
  });

  test("a connection outside a transaction is refused", async () => {
    const connection = await pool.getConnection();
    onTestFinished(() => connection.release());
    await expect(fence(connection, createTestLock(2_000))).rejects.toThrow(/inside a transaction/);
    await expect(fence(connection, createTestLock(2_000, "shared"))).rejects.toThrow(/inside a transaction/);
    await connection.query("set autocommit = 0");
    await fence(connection, createTestLock(2_000));
    await connection.query("rollback");
    await connection.query("set autocommit = 1");
  });

  test("the table is not created inside a transaction, which that would commit", async () => {
    const connection = await pool.getConnection();
    onTestFinished(() => connection.release());
    await connection.beginTransaction();
    await expect(createFenceTable(connection, { prefix: "other" })).rejects.toThrow(/must not be inside/);
    await connection.rollback();
    await pool.query(fenceMigration("mysql", { prefix: "other" }));
    await connection.beginTransaction();
    await fence(connection, createTestLock(1), { prefix: "other" });
    await connection.commit();
  });

  async function begin(level: string): Promise<TestTransaction> {
    const connection: PoolConnection = await pool.getConnection();
    const isSnapshot = level === SNAPSHOT_LEVEL;
    await connection
      .query(`set session innodb_snapshot_isolation = ${isSnapshot ? "on" : "off"}`)
      .catch(() => undefined);
    await connection.query(`set transaction isolation level ${isSnapshot ? "repeatable read" : level}`);
    await connection.beginTransaction();
    let isReleased = false;
    const end = async (text: string): Promise<void> => {
      if (isReleased) return;
      isReleased = true;
      try {
        await connection.query(text);
        connection.release();
      } catch (error) {
        connection.destroy();
        if (text === "commit") throw error;
      }
    };
    onTestFinished(() => {
      if (!isReleased) connection.destroy();
      isReleased = true;
    });
    return {
      handle: connection,
      query: async (text) => (await connection.query(text))[0] as Rows,
      isBlocked: async () => {
        // innodb_trx would show what it was when the first of many readers asked
        const text = "select 1 from information_schema.processlist where id = ? and command = 'Query' and time_ms > 50";
        return ((await pool.query(text, [connection.threadId]))[0] as Rows).length > 0;
      },
      commit: () => end("commit"),
      rollback: () => end("rollback"),
    };
  }
}, TOLERANT);
