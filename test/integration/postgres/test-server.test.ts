// The PostgreSQL and the PgBouncer that the other tests of this folder run against.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import postgres from "postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import { builtFile } from "../../support/built-file.ts";
import { descendants, identifyProcess, isAlive } from "../../support/processes/process-tree.ts";
import { pgBouncerUnavailableReason, startPgBouncer } from "../../support/stores/pgbouncer.ts";
import { queryPostgres, startPostgres } from "../../support/stores/postgres.ts";
import { withPostgres, withPostgresClock } from "../../support/stores/sql-fixture.ts";
import { until } from "../../support/until.ts";

const SETTINGS = `select current_setting('default_transaction_isolation') as isolation, current_setting('fsync') as sync`;

withPostgres(
  (server) => {
    test("a fresh database is empty, and is not another one", async () => {
      const [one, other] = [await server().freshDatabase(), await server().freshDatabase()];
      await one.query("create table t (n int)");
      expect(await other.query("select to_regclass('t') as found")).toEqual([{ found: null }]);
      await one.drop();
      await expect(one.query("select 1")).rejects.toThrow(/does not exist/);
      expect(await other.query("select $1::bigint as n", ["9223372036854775807"])).toEqual([
        { n: "9223372036854775807" },
      ]);
    });

    test("the server has the settings that were asked for, and no sync unless that was", async () => {
      expect(await server().query(SETTINGS)).toEqual([{ isolation: "repeatable read", sync: "off" }]);
    });

    test("a role needs its password", async () => {
      const database = await server().freshDatabase();
      await database.query("create role app login password 'pw'");
      expect(await queryPostgres(database.urlOf("app", "pw"), "select current_user::text as name")).toEqual([
        { name: "app" },
      ]);
      await expect(queryPostgres(database.urlOf("app", "other"), "select 1")).rejects.toThrow(/password/);
    });

    test.each(["restart", "crash"] as const)("what was committed is there after a %s", async (way) => {
      const database = await server().freshDatabase();
      await database.query("create table t (n int)");
      await database.query("insert into t values (1)");
      const before = await server().query("select pg_backend_pid()::text as pid");
      if (way === "restart") await server().restart();
      else {
        const all = [identifyProcess(server().pid), ...descendants(server().pid)].filter((one) => one !== null);
        expect(all.length).toBeGreaterThan(3);
        await server().crash();
        expect(all.filter(isAlive)).toEqual([]);
        expect(server().pid).toBe(0);
        await server().start();
      }
      expect(await database.query("select n from t")).toEqual([{ n: 1 }]);
      expect(await server().query("select pg_backend_pid()::text as pid")).not.toEqual(before);
    });

    test("a paused server does not answer before it goes on, and can be stopped", async () => {
      await server().query("select 1");
      server().signal("SIGSTOP");
      let hasAnswered = false;
      const query = server().query("select 1");
      query.then(
        () => (hasAnswered = true),
        () => undefined,
      );
      await expect(until(() => hasAnswered, { within: 100, what: "an answer" })).rejects.toThrow(/in vain/);
      server().signal("SIGCONT");
      await query;
      server().signal("SIGSTOP");
      await server().restart();
      await server().query("select 1");
    });

    // with CI=true it is not skipped, and fails where there is none
    const hasNoPooler = pgBouncerUnavailableReason() !== null && process.env.CI !== "true";
    test.skipIf(hasNoPooler)("a pooler in transaction mode puts two clients on one connection", async () => {
      const pooler = await startPgBouncer(server().port);
      onTestFinished(() => pooler.dispose());
      const database = await server().freshDatabase();
      const pid = async (): Promise<unknown> =>
        (await queryPostgres(pooler.urlOf(database.name), "select pg_backend_pid()::text as pid"))[0]?.pid;
      expect(await pid()).toBe(await pid());
      expect(await queryPostgres(pooler.consoleUrl, "show version")).toEqual([
        { version: expect.stringContaining("PgBouncer") },
      ]);
    });
  },
  { settings: { default_transaction_isolation: "repeatable read" } },
);

describe("with a clock of its own", () => {
  withPostgresClock((server, clock) => {
    test("the database's time is moved while it runs", async () => {
      const now = async (): Promise<number> => {
        const [row] = await server().query("select (extract(epoch from clock_timestamp()) * 1000)::bigint::text as ms");
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
  const server = await startPostgres({ isSynced: true, settings: { deadlock_timeout: "10ms" } });
  expect(await server.query(SETTINGS)).toEqual([{ isolation: "read committed", sync: "on" }]);
  await server.query("create table t as select n from generate_series(1, 2) n");
  const [one, other] = [postgres(server.url, { max: 1 }), postgres(server.url, { max: 1 })];
  for (const [connection, n] of [
    [one, 1],
    [other, 2],
  ] as const) {
    await connection.unsafe("begin");
    await connection.unsafe(`update t set n = n where n = ${n}`);
  }
  const ended = await Promise.allSettled([
    one.unsafe("update t set n = n where n = 2"),
    other.unsafe("update t set n = n where n = 1"),
  ]);
  expect(ended.map(({ status }) => status)).toContain("rejected");
  await Promise.all([one.end({ timeout: 0 }), other.end({ timeout: 0 })]);
  await expect(server.dispose()).rejects.toThrow(/deadlock detected/);
});

test.skipIf(process.platform !== "linux")("a server ends with the process that started it", async () => {
  const script = `
    const { startPostgres } = await import(${JSON.stringify(builtFile("build/test/support/stores/postgres.js"))});
    console.log((await startPostgres()).folder);
  `;
  const starter = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [output] = (await once(starter.stdout, "data")) as [Buffer];
  const folder = output.toString().trim();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const servers = descendants(starter.pid ?? 0);
  expect(servers.length).toBeGreaterThan(3);
  starter.kill("SIGKILL");
  await until(() => !servers.some(isAlive), { within: 10_000, what: "the end of the server" });
});
