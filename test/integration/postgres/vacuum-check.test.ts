// What diagnose() says of transactions, slots and standbys for which the server keeps the old versions of rows.

import { Client } from "pg";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import type { Check } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { startPostgresStandby } from "../../support/stores/postgres.ts";
import type { OpenDriver, PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgresClock } from "../../support/stores/sql-fixture.ts";

const MINUTE_MS = 60_000;
const OK = { status: "ok", name: "vacuum", message: "nothing keeps old versions of rows for long" };
const SETTINGS = { max_prepared_transactions: "4", wal_level: "logical" };
const SECRET = "select 'a secret'";

withPostgresClock(
  (server, clock) => {
    let fixture: PostgresFixture;
    let one: OpenDriver;
    const sessions: Client[] = [];
    beforeEach(async () => {
      clock().shift(0);
      fixture = await createPostgresFixture(server());
      one = await fixture.open();
    });
    afterEach(async () => {
      for (const client of sessions.splice(0)) await client.end();
      await fixture.close();
    });

    const check = async ({ driver }: OpenDriver = one): Promise<Check | undefined> =>
      (await driver.diagnose?.())?.find(({ name }) => name === "vacuum");

    /** A session that ends with the test. */
    const session = async (url: string, ...statements: string[]): Promise<Client> => {
      const client = new Client({ connectionString: url, application_name: "report" });
      await client.connect();
      sessions.push(client);
      for (const statement of statements) await client.query(statement);
      return client;
    };
    const begin = "begin isolation level repeatable read";

    const untilFound = (text: string, what: string): Promise<unknown> =>
      until(async () => (await server().query(text)).length > 0, { within: 10_000, what });

    const useTransactionNumbers = (): Promise<unknown> =>
      server().query("do $$ begin for i in 1..100001 loop perform pg_current_xact_id(); commit; end loop; end $$");

    const otherDatabase = async (): Promise<TestDatabase> => {
      const other = await server().freshDatabase();
      onTestFinished(() => other.drop());
      return other;
    };

    test("a transaction that is open for more than five minutes is named, without its query", async () => {
      await session(fixture.database.url, begin, SECRET);
      clock().shift(4 * MINUTE_MS);
      expect(await check()).toEqual(OK);
      clock().shift(6 * MINUTE_MS);
      const found = await check();
      expect(found).toMatchObject({
        status: "warn",
        message: expect.stringMatching(
          /^a transaction of "report" \(pid \d+\), open for 6 m, keeps the old versions of rows of the last \d+ transactions, /,
        ),
        hint: expect.stringContaining("end it"),
      });
      expect(JSON.stringify(found)).not.toContain("secret");
      const opened = await fixture.open({ silenceWarnings: ["durability", "vacuum"] });
      expect(fixture.warnings).toEqual([]);
      expect(await check(opened)).toMatchObject({ status: "warn" });
    });

    test("of several the one whose number the others keep is named", async () => {
      await session(
        fixture.database.url,
        "set application_name = 'writer'",
        "begin",
        "create table rows_of_it (n int)",
      );
      await session(fixture.database.url, begin, SECRET);
      clock().shift(6 * MINUTE_MS);
      expect(await check()).toMatchObject({ message: expect.stringContaining('a transaction of "writer" (pid ') });
    });

    test("in another database only one that has written counts", async () => {
      const { url } = await otherDatabase();
      await session(url, begin, SECRET);
      clock().shift(6 * MINUTE_MS);
      expect(await check()).toEqual(OK);
      clock().shift(0);
      await session(url, "begin", "create table rows_of_it (n int)");
      clock().shift(6 * MINUTE_MS);
      expect(await check()).toMatchObject({ status: "warn" });
    });

    test("a prepared transaction is named by its age and owner", async () => {
      await session(fixture.database.url, "begin", "create table rows_of_it (n int)", "prepare transaction 'a secret'");
      clock().shift(6 * MINUTE_MS);
      const found = await check();
      await fixture.database.query("rollback prepared 'a secret'");
      expect(found).toMatchObject({
        status: "warn",
        message: expect.stringMatching(/^a prepared transaction of role "postgres", open for 6 m, keeps /),
      });
      expect(JSON.stringify(found)).not.toContain("secret");
      expect(await check()).toEqual(OK);
    });

    test("VACUUM does not count: the server removes rows as if it had no snapshot", async () => {
      await fixture.database.query("create table rows_of_it as select n from generate_series(1, 20000) n");
      await fixture.database.query("delete from rows_of_it");
      const slow = await session(fixture.database.url, "set vacuum_cost_delay = 100", "set vacuum_cost_limit = 1");
      const work = expect(slow.query("vacuum rows_of_it")).rejects.toThrow("canceling statement");
      const running = "from pg_stat_progress_vacuum join pg_stat_activity using (pid) where backend_xmin is not null";
      await untilFound(`select ${running}`, "a snapshot of VACUUM");
      clock().shift(6 * MINUTE_MS);
      expect(await check()).toEqual(OK);
      await server().query(`select pg_cancel_backend(pid) ${running}`);
      await work;
    });

    test("a role that does not see others' transactions is told by their number; one that may read nothing is told so", async () => {
      const role = `role_${fixture.database.name}`;
      await fixture.database.query(`create role ${role} login password 'p@ss'`);
      await fixture.database.query(`grant create on database ${fixture.database.name} to ${role}`);
      const url = fixture.database.urlOf(role, "p@ss");
      const limited = await fixture.open({ url, schema: "mine" });
      await session(fixture.database.url, begin, SECRET);
      clock().shift(6 * MINUTE_MS);
      expect(await check(limited)).toEqual(OK);
      await useTransactionNumbers();
      expect(await check(limited)).toMatchObject({
        status: "warn",
        message: expect.stringMatching(/^a transaction of "report" \(pid \d+\) keeps .* the last 1\d{5} transactions/),
      });
      await fixture.database.query("revoke select on pg_prepared_xacts from public");
      expect(await check(limited)).toEqual({
        status: "unknown",
        name: "vacuum",
        message: "this role may not read what keeps old versions of rows",
      });
      await fixture.open({ url, schema: "mine" });
    });

    test("slots and standbys count by the number of transactions", async () => {
      await server().query(
        "select pg_create_physical_replication_slot('used'), pg_create_logical_replication_slot('changes', 'pgoutput')",
      );
      const standby = await startPostgresStandby(server(), {
        settings: { ...SETTINGS, hot_standby_feedback: "on", wal_receiver_status_interval: "1" },
      });
      onTestFinished(() => standby.dispose());
      await session(fixture.database.url.replace(`:${server().port}/`, `:${standby.port}/`), begin, SECRET);
      await untilFound("select from pg_stat_replication where backend_xmin is not null", "the standby's snapshot");
      expect(await check()).toEqual(OK);
      await useTransactionNumbers();
      expect(await check()).toMatchObject({
        status: "warn",
        message: expect.stringMatching(/^the standby "walreceiver" \(pid \d+\) keeps .* the last 1\d{5} transactions/),
        hint: expect.stringContaining("hot_standby_feedback"),
      });
      await standby.query("alter system set primary_slot_name = 'used'");
      await standby.query("select pg_reload_conf()");
      await untilFound("select from pg_replication_slots where xmin is not null", "the snapshot of the slot");
      expect(await check()).toMatchObject({
        message: expect.stringMatching(/^the replication slot "used" \(pid \d+\) keeps /),
        hint: expect.stringContaining("drop it"),
      });
      for (const client of sessions.splice(0)) await client.end();
      await standby.crash();
      await untilFound(
        "select from pg_replication_slots where slot_name = 'used' and not active",
        "the end of its use",
      );
      expect(await check()).toMatchObject({ message: expect.stringMatching(/^the replication slot "used" keeps /) });
      await server().query("select pg_drop_replication_slot('used')");
      // the other one keeps rows of the catalogs only
      expect(await check()).toEqual(OK);
      await server().query("select pg_drop_replication_slot('changes')");
    });
  },
  { settings: SETTINGS },
);
