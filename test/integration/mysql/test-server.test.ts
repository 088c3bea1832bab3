// The MariaDB that the other tests of this folder run against.

import { createConnection } from "mysql2/promise";
import { describe, expect, test } from "vitest";
import { queryMariaDb, startMariaDb } from "../../support/stores/mariadb.ts";
import { withMariaDb, withMariaDbClock } from "../../support/stores/sql-fixture.ts";

const SETTINGS = "select @@tx_isolation as isolation, cast(@@innodb_flush_log_at_trx_commit as char) as sync";

withMariaDb(
  (server) => {
    test("a fresh database is empty, and is not another one", async () => {
      const [one, other] = [await server().freshDatabase(), await server().freshDatabase()];
      await one.query("create table t (n int)");
      expect(await other.query("show tables")).toEqual([]);
      await one.drop();
      await expect(one.query("select 1")).rejects.toThrow(/Unknown database/);
      expect(await other.query("select cast(? as unsigned) as n", ["9223372036854775807"])).toEqual([
        { n: "9223372036854775807" },
      ]);
    });

    test("the server has the settings that were asked for, and no sync unless that was", async () => {
      expect(await server().query(SETTINGS)).toEqual([{ isolation: "SERIALIZABLE", sync: "2" }]);
    });

    test("a user needs its password", async () => {
      const database = await server().freshDatabase();
      await database.query("create user app identified by 'pw'");
      await database.query(`grant all on ${database.name}.* to app`);
      expect(await queryMariaDb(database.urlOf("app", "pw"), "select current_user() as name")).toEqual([
        { name: "app@%" },
      ]);
      await expect(queryMariaDb(database.urlOf("app", "other"), "select 1")).rejects.toThrow(/Access denied/);
    });

    test.each(["restart", "crash"] as const)("what was committed is there after a %s", async (way) => {
      const database = await server().freshDatabase();
      await database.query("create table t (n int)");
      await database.query("insert into t values (1)");
      const { pid } = server();
      if (way === "restart") await server().restart();
      else {
        await server().crash();
        expect(server().pid).toBe(0);
        await server().start();
      }
      expect(server().pid).not.toBe(pid);
      expect(await database.query("select n from t")).toEqual([{ n: 1 }]);
    });
  },
  { settings: { "transaction-isolation": "SERIALIZABLE" } },
);

describe("with a clock of its own", () => {
  withMariaDbClock((server, clock) => {
    test("the database's time is moved while it runs", async () => {
      const now = async (): Promise<number> => {
        const [row] = await server().query(
          "select cast(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) div 1000 as char) as ms",
        );
        return Number(row?.ms);
      };
      expect(Math.abs((await now()) - Date.now())).toBeLessThan(5_000);
      clock().shift(60_000);
      expect((await now()) - Date.now()).toBeGreaterThan(55_000);
      clock().shift(-60_000);
      expect((await now()) - Date.now()).toBeLessThan(-55_000);
      clock().freeze(1_800_000_000_000_000);
      expect(await now()).toBe(1_800_000_000_000);
      clock().shift(0);
    });
  });
});

test("a deadlock in the log of a server is reported when the server is removed", async () => {
  const server = await startMariaDb({ isSynced: true });
  expect(await server.query(SETTINGS)).toEqual([{ isolation: "REPEATABLE-READ", sync: "1" }]);
  const { url, query } = await server.freshDatabase();
  await query("create table t (n int primary key, m int)");
  await query("insert into t values (1, 0), (2, 0)");
  const [one, other] = [await createConnection(url), await createConnection(url)];
  for (const [connection, n] of [
    [one, 1],
    [other, 2],
  ] as const) {
    await connection.query("start transaction");
    await connection.query(`update t set m = 1 where n = ${n}`);
  }
  const ended = await Promise.allSettled([
    one.query("update t set m = 1 where n = 2"),
    other.query("update t set m = 1 where n = 1"),
  ]);
  expect(ended.map(({ status }) => status)).toContain("rejected");
  one.destroy();
  other.destroy();
  await expect(server.dispose()).rejects.toThrow(/deadlock detected/);
});
