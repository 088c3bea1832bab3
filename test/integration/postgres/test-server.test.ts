// The PostgreSQL and the PgBouncer that the other tests of this folder run against.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import postgres from "postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { descendants, isAlive } from "../../../src/torture/processes/process-tree.ts";
import { builtFile } from "../../support/built-file.ts";
import { pgBouncerUnavailableReason, startPgBouncer } from "../../support/stores/pgbouncer.ts";
import { queryPostgres, startPostgres } from "../../support/stores/postgres.ts";
import { withPostgres, withPostgresClock } from "../../support/stores/sql-fixture.ts";
import type { ServerKind } from "../../support/stores/test-server-tests.ts";
import { testReportOfFaults, testServer, testServerClock } from "../../support/stores/test-server-tests.ts";

const POSTGRES: ServerKind = {
  settingsQuery:
    "select current_setting('default_transaction_isolation') as isolation, current_setting('fsync') as sync",
  settings: {
    asked: { isolation: "repeatable read", sync: "off" },
    byDefault: { isolation: "read committed", sync: "on" },
  },
  bigintQuery: "select $1::bigint as n",
  clockQuery: "select (extract(epoch from clock_timestamp()) * 1000)::bigint::text as ms",
  processes: 4,
  createUser: ({ query }) => query("create role app login password 'pw'"),
  readUser: (url) => queryPostgres(url, "select current_user::text as name"),
  userName: "app",
  start: (options) => startPostgres({ ...options, settings: { deadlock_timeout: "10ms" } }),
  async open(url) {
    const sql = postgres(url, { max: 1 });
    return { run: (text) => sql.unsafe(text), close: () => sql.end({ timeout: 0 }) };
  },
};

withPostgres(
  (server) => {
    testServer(server, POSTGRES);

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
  withPostgresClock((server, clock) => testServerClock(server, clock, POSTGRES.clockQuery));
});

testReportOfFaults(POSTGRES);

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
