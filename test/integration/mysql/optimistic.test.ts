// Rows with a version column in MariaDB.

import { createPool as createMariaDbPool } from "mariadb";
import type { Connection, Pool } from "mysql2/promise";
import { createConnection, createPool } from "mysql2/promise";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { optimistic } from "../../../src/optimistic/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { createStockTable, PATIENT, stockRow, takeOne, testVersionedRow } from "../../support/versioned-row-tests.ts";

withMariaDb(
  (server) => {
    let database: TestDatabase;
    beforeAll(async () => {
      database = await server().freshDatabase();
    });

    const query: TestDatabase["query"] = (text, values) => database.query(text, values);
    const openPool = (settings: object = {}): Pool =>
      createPool({ uri: database.url, connectionLimit: 4, ...settings });
    const openConnection = async (): Promise<Connection> => {
      const connection = await createConnection(database.url);
      onTestFinished(() => connection.end());
      return connection;
    };

    // by default both libraries count found rows
    test.each([
      [[], 1],
      [["-FOUND_ROWS"], 0],
    ] as const)("mysql2 with flags %j counts %i unchanged rows", async (flags, count) => {
      await createStockTable(query);
      const pool = openPool({ flags });
      onTestFinished(() => pool.end());
      const [header] = await pool.query("update t_stock set left_count = 100 where id = 1");
      expect(header).toMatchObject({ affectedRows: count });
    });

    for (const flags of [[], ["-FOUND_ROWS"]]) {
      testVersionedRow(
        `a pool of mysql2 ${flags}`,
        () => {
          const pool = openPool({ flags });
          return { handle: pool, close: () => pool.end() };
        },
        query,
      );
    }
    for (const foundRows of [true, false]) {
      testVersionedRow(
        `a pool of mariadb, foundRows ${foundRows}`,
        () => {
          const { hostname, port, pathname } = new URL(database.url);
          const pool = createMariaDbPool({
            host: hostname,
            port: Number(port),
            user: "root",
            database: pathname.slice(1),
            connectionLimit: 4,
            foundRows,
          });
          return { handle: pool, close: () => pool.end() };
        },
        query,
      );
    }
    testVersionedRow(
      "a connection of mysql2",
      async () => {
        const connection = await createConnection(database.url);
        return { handle: connection, close: () => connection.end() };
      },
      query,
    );

    describe("errors of the database", () => {
      beforeEach(async () => {
        await createStockTable(query);
        await query("drop table if exists t_log");
        await query("create table t_log (id int primary key, n int)");
        await query("insert into t_log select seq, 0 from seq_1_to_50");
      });

      const readStock = async (): Promise<unknown> => {
        const [row] = await query("select left_count, version from t_stock where id = 1");
        return [Number(row?.left_count), Number(row?.version)];
      };
      /** The connection of a transaction that waits for a lock. innodb_trx would show what it was when it was first asked. */
      const findBlocked = async (): Promise<string | undefined> => {
        const [row] = await query("show engine innodb status");
        const [, transactions = ""] = String(row?.Status).split("\nTRANSACTIONS\n");
        const waiting = transactions.split("---TRANSACTION").find((text) => text.includes("LOCK WAIT"));
        return /thread id (\d+)/.exec(waiting ?? "")?.[1];
      };
      /** The write will wait for `other`, which then wants the row that the write has changed, and has changed more rows. */
      const prepareDeadlock = async (): Promise<Connection> => {
        await query(
          "create trigger log_stock after update on t_stock for each row update t_log set n = n + 1 where id = 1",
        );
        const other = await openConnection();
        await other.query("begin");
        await other.query("update t_log set n = 10");
        return other;
      };

      test("the write is the victim of a deadlock: retried", async () => {
        const other = await prepareDeadlock();
        const pool = openPool();
        onTestFinished(() => pool.end());
        const taking = optimistic(stockRow(pool), takeOne, PATIENT);
        await until(findBlocked, { within: 10_000, what: "the write to wait" });
        await other.query("update t_stock set name = 'renamed' where id = 1");
        await other.query("commit");
        // the retry may read the row before or after the commit
        expect((await taking).status).toBe("written");
        expect((await taking).retries).toBeGreaterThan(0);
        expect(await readStock()).toEqual([99, 1]);
      });

      test("a deadlock inside a transaction, which it ends: not retried, since that would commit alone", async () => {
        const other = await prepareDeadlock();
        const connection = await openConnection();
        await connection.query("begin");
        await connection.query("insert into t_stock values (3, 'three', 3, 0)");
        const taking = optimistic(stockRow(connection), takeOne, PATIENT);
        const settled = expect(taking).rejects.toMatchObject({
          code: "LOCK_VERSION_CONFLICT",
          attempts: 1,
          message: /inside a transaction/,
          cause: { errno: 1213 },
        });
        await until(findBlocked, { within: 10_000, what: "the write to wait" });
        await other.query("update t_stock set name = 'renamed' where id = 1");
        await settled;
        await other.query("commit");
        await connection.query("commit");
        expect(await readStock()).toEqual([100, 0]);
        expect(await query("select * from t_stock where id = 3")).toEqual([]);
      });

      test("inside a transaction of repeatable read: a conflict that names the snapshot", async () => {
        const connection = await openConnection();
        await connection.query("begin");
        await connection.query("select * from t_stock");
        await query("update t_stock set version = version + 1 where id = 1");
        await expect(optimistic(stockRow(connection), takeOne, { ...PATIENT, attempts: 3 })).rejects.toMatchObject({
          code: "LOCK_VERSION_CONFLICT",
          attempts: 3,
          message: /version 0 was read again after it had moved: from the snapshot of a transaction/,
        });
        await connection.query("rollback");
      });

      test("the connection is killed while the write waits: unknown, and not repeated", async () => {
        const other = await openConnection();
        await other.query("begin");
        await other.query("update t_stock set name = 'held' where id = 1");
        const pool = openPool();
        onTestFinished(() => pool.end());
        let attempts = 0;
        const failed = optimistic(
          stockRow(pool),
          (row) => {
            attempts++;
            return takeOne(row);
          },
          PATIENT,
        );
        const settled = expect(failed).rejects.toMatchObject({ code: "LOCK_OUTCOME_UNKNOWN", attempts: 1 });
        await query(`kill ${await until(findBlocked, { within: 10_000, what: "the write to wait" })}`);
        await settled;
        await other.query("rollback");
        expect([attempts, await readStock()]).toEqual([1, [100, 0]]);
      });

      test("what the database refuses is passed on", async () => {
        await query("alter table t_stock add constraint enough check (left_count <> 99)");
        const pool = openPool();
        onTestFinished(() => pool.end());
        await expect(optimistic(stockRow(pool), takeOne)).rejects.toMatchObject({ errno: 4025 });
      });
    });
    // some of these tests make a deadlock, which the log would otherwise report as a fault
  },
  { settings: { "innodb-print-all-deadlocks": "OFF" } },
);
