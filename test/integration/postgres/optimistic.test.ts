// Rows with a version column in PostgreSQL.

import { Client, Pool } from "pg";
import postgresJs from "postgres";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { optimistic } from "../../../src/optimistic/index.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import type { Stock } from "../../support/versioned-row-tests.ts";
import { createStockTable, PATIENT, stockRow, takeOne, testVersionedRow } from "../../support/versioned-row-tests.ts";

const WITHIN = { within: 10_000 };

withPostgres((server) => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await server().freshDatabase();
  });

  const query: TestDatabase["query"] = (text, values) => database.query(text, values);
  const openPool = (url: string = database.url): Pool => {
    const pool = new Pool({ connectionString: url, max: 4 });
    pool.on("error", () => undefined);
    return pool;
  };
  const openClient = async (): Promise<Client> => {
    const client = new Client(database.url);
    client.on("error", () => undefined);
    await client.connect();
    return client;
  };

  testVersionedRow(
    "a Pool of pg",
    () => {
      const pool = openPool();
      return { handle: pool, close: () => pool.end() };
    },
    query,
  );
  testVersionedRow(
    "a Client of pg",
    async () => {
      const client = await openClient();
      // pg 9 refuses a statement while another one runs
      return { handle: client, callers: 1, close: () => client.end() };
    },
    query,
  );
  testVersionedRow(
    "postgres.js",
    () => {
      const sql = postgresJs(database.url, { max: 4, onnotice: () => undefined });
      return { handle: sql, close: () => sql.end() };
    },
    query,
  );

  describe("errors of the database", () => {
    beforeEach(() => createStockTable(query));

    /** Another session that has changed row 1 and not committed. */
    const holdRow = async (): Promise<Client> => {
      const client = await openClient();
      onTestFinished(() => client.end());
      await client.query("begin");
      await client.query("update t_stock set left_count = 50, version = version + 1 where id = 1");
      return client;
    };
    const findBlocked = async (): Promise<number | undefined> => {
      const [row] = await query(
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like 'update \"t_stock\"%'",
      );
      return row?.pid as number | undefined;
    };
    const readStock = async (): Promise<unknown> =>
      (await query("select left_count, version::int as version from t_stock where id = 1"))[0];

    test.each(["read committed", "repeatable read", "serializable"])(
      "another session commits while the write waits, by default under %s: retried",
      async (isolation) => {
        const pool = openPool(
          `${database.url}?options=${encodeURIComponent(`-c default_transaction_isolation=${isolation.replace(" ", "\\ ")}`)}`,
        );
        onTestFinished(() => pool.end());
        expect((await pool.query("show transaction_isolation")).rows).toEqual([{ transaction_isolation: isolation }]);
        const other = await holdRow();
        const taking = optimistic(stockRow(pool), takeOne, PATIENT);
        await until(findBlocked, { ...WITHIN, what: "the write to wait" });
        await other.query("commit");
        expect(await taking).toMatchObject({ status: "written", retries: 1, before: { left_count: 50 } });
        expect(await readStock()).toEqual({ left_count: 49, version: 2 });
      },
    );

    test("inside a transaction of repeatable read: one attempt, and the error says to repeat all of it", async () => {
      const client = await openClient();
      onTestFinished(() => client.end());
      await client.query("begin isolation level repeatable read");
      const failed = optimistic(stockRow(client), async (row) => {
        await query("update t_stock set version = version + 1 where id = 1");
        return takeOne(row);
      });
      await expect(failed).rejects.toMatchObject({
        code: "LOCK_VERSION_CONFLICT",
        attempts: 1,
        message: /inside a transaction/,
        cause: { code: "40001" },
      });
      await client.query("rollback");
      expect(await readStock()).toEqual({ left_count: 100, version: 1 });
    });

    test("the connection is killed while the write waits: unknown, and not repeated", async () => {
      const other = await holdRow();
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
      const pid = await until(findBlocked, { ...WITHIN, what: "the write to wait" });
      await query("select pg_terminate_backend($1)", [pid]);
      await settled;
      await other.query("rollback");
      expect([attempts, await readStock()]).toEqual([1, { left_count: 100, version: 0 }]);
    });

    test("the write commits and its answer is lost: unknown, and written once", async () => {
      await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const pool = openPool(
        database.url.replace(`:${server().port}/`, `:${(proxy.address as { port: number }).port}/`),
      );
      onTestFinished(() => pool.end());
      let attempts = 0;
      const failed = optimistic(
        stockRow(pool),
        (row: Stock) => {
          attempts++;
          proxy.toClient.pause();
          return takeOne(row);
        },
        PATIENT,
      );
      const settled = expect(failed).rejects.toMatchObject({ code: "LOCK_OUTCOME_UNKNOWN", attempts: 1 });
      await until(async () => ((await readStock()) as { version: number }).version === 1, {
        ...WITHIN,
        what: "the write to commit",
      });
      proxy.reset();
      await settled;
      expect([attempts, await readStock()]).toEqual([1, { left_count: 99, version: 1 }]);
    });

    test("what the database refuses is passed on: a constraint, a missing table", async () => {
      await query("alter table t_stock add constraint enough check (left_count <> 99)");
      const pool = openPool();
      onTestFinished(() => pool.end());
      await expect(optimistic(stockRow(pool), takeOne)).rejects.toMatchObject({ code: "23514" });
      await query("drop table t_stock");
      await expect(optimistic(stockRow(pool), takeOne)).rejects.toMatchObject({ code: "42P01" });
      await createStockTable(query);
    });

    test("a server that cannot be reached: its own error, since nothing was sent", async () => {
      const pool = openPool("postgres://postgres@127.0.0.1:1/none");
      onTestFinished(() => pool.end());
      await expect(optimistic(stockRow(pool), takeOne)).rejects.toMatchObject({ code: "ECONNREFUSED" });
    });
  });
});
