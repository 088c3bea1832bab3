// Other users of a pool, or of a pooler, leave settings in its sessions: none makes a call fail, weakens what it promises, or is changed.

import { Client, Pool } from "pg";
import postgresJs from "postgres";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

/** Each by its name, with what the session does. */
const LEAKED_SETTINGS = [
  ["default_transaction_isolation", "set default_transaction_isolation = 'repeatable read'"],
  ["default_transaction_isolation", "set default_transaction_isolation = serializable"],
  [
    "default_transaction_isolation",
    "set session characteristics as transaction isolation level serializable, read only",
  ],
  ["default_transaction_read_only", "set default_transaction_read_only = on"],
  ["default_transaction_deferrable", "set default_transaction_deferrable = on"],
  ["synchronous_commit", "set synchronous_commit = off"],
  ["synchronous_commit", "set synchronous_commit = local"],
  ["statement_timeout", "set statement_timeout = 20"],
  ["lock_timeout", "set lock_timeout = 1"],
  ["idle_in_transaction_session_timeout", "set idle_in_transaction_session_timeout = 1"],
  ["role", "set role nobody_at_all"],
  ["session_authorization", "set session authorization nobody_at_all"],
  ["search_path", "set search_path = hostile, pg_catalog"],
  ["search_path", "set search_path = ''"],
  ["client_encoding", "set client_encoding = latin1"],
  ["client_encoding", "set client_encoding = sjis"],
  ["client_encoding", "set client_encoding = sql_ascii"],
  ["standard_conforming_strings", "set standard_conforming_strings = off"],
  ["backslash_quote", "set backslash_quote = off"],
  ["row_security", "set row_security = off"],
  ["session_replication_role", "set session_replication_role = replica"],
  ["DateStyle", "set datestyle = 'SQL, DMY'"],
  ["IntervalStyle", "set intervalstyle = iso_8601"],
  ["bytea_output", "set bytea_output = escape"],
  ["extra_float_digits", "set extra_float_digits = -15"],
  ["TimeZone", "set timezone = 'Asia/Kathmandu'"],
  ["array_nulls", "set array_nulls = off"],
  ["transform_null_equals", "set transform_null_equals = on"],
  ["xmloption", "set xmloption = document"],
  ["plan_cache_mode", "set plan_cache_mode = force_custom_plan"],
  ["enable_indexscan", "set enable_indexscan = off"],
  ["enable_bitmapscan", "set enable_bitmapscan = off"],
  ["enable_indexonlyscan", "set enable_indexonlyscan = off"],
  ["work_mem", "set work_mem = 64"],
  ["plpgsql.extra_errors", "set plpgsql.extra_errors = 'all'"],
  ["plpgsql.variable_conflict", "set plpgsql.variable_conflict = use_column"],
  ["check_function_bodies", "set check_function_bodies = off"],
  ["lc_messages", "set lc_messages = 'C'"],
  ["default_tablespace", "set default_tablespace = pg_default"],
] as const;

/** The role and the time-outs last: under them no other setting could be set. */
const RANKS = { role: 1, session_authorization: 2, statement_timeout: 3 } as const;
const byTimeout = ([left]: readonly [string, string], [right]: readonly [string, string]): number =>
  (RANKS[left as keyof typeof RANKS] ?? 0) - (RANKS[right as keyof typeof RANKS] ?? 0);

/** Not ASCII, and another key in each character set. */
const KEY = "\u65e5\u672c \u00e9 '\\ key";

/** Three libraries with one session each. */
async function connectWith(library: "pg" | "pg, a single client" | "postgres.js", url: string): Promise<Session> {
  if (library === "postgres.js") {
    const sql = postgresJs(url, { max: 1, onnotice: () => undefined });
    return { client: sql, run: async (text) => [...(await sql.unsafe(text))], end: () => sql.end() };
  }
  if (library === "pg") {
    const pool = new Pool({ connectionString: url, max: 1 });
    return { client: pool, run: async (text) => (await pool.query(text)).rows, end: () => pool.end() };
  }
  const client = new Client(url);
  await client.connect();
  return { client, run: async (text) => (await client.query(text)).rows, end: () => client.end() };
}

interface Session {
  /** What the driver gets. */
  readonly client: object;
  /** As another user of the session. */
  run(text: string): Promise<unknown>;
  end(): Promise<unknown>;
}

withPostgres((server) => {
  let fixture: PostgresFixture;
  const closers: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    fixture = await createPostgresFixture(server());
    await fixture.database.query(`create role nobody_at_all; create schema hostile;
      create function hostile.compare(text, text) returns boolean language sql as 'select true';
      create operator hostile.= (leftarg = text, rightarg = text, function = hostile.compare);
      create operator hostile.< (leftarg = text, rightarg = text, function = hostile.compare);
      create operator hostile.>= (leftarg = text, rightarg = text, function = hostile.compare)`);
  });
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
    await fixture.database.query("delete from holdfast.holdfast_1_claims");
  });
  afterAll(() => fixture.close());

  const connectSession = async (library: Parameters<typeof connectWith>[0]): Promise<Session> => {
    const session = await connectWith(library, fixture.database.url);
    closers.push(() => session.end());
    return session;
  };
  const open = async (client: object): Promise<Driver> => {
    const driver = postgres(client as never, { silenceWarnings: ["durability", "isolation", "push"] });
    await driver.open(NO_EVENTS);
    closers.push(() => driver.close());
    return driver;
  };

  describe.each(["pg", "pg, a single client", "postgres.js"] as const)("%s", (library) => {
    test.each(LEAKED_SETTINGS)("a session with %s: %s", async (name, text) => {
      const plain = await open((await connectSession("pg")).client);
      const session = await connectSession(library);
      await session.run(text);
      const before = await session.run(`show ${name}`);
      const driver = await open(session.client);
      await expectWorks(driver, plain);
      expect(await session.run(`show ${name}`)).toEqual(before);
      expect(await fixture.inspect()).toEqual([]);
    });

    test("a statement_timeout that is shorter than a wait for a lock", async () => {
      const session = await connectSession(library);
      const driver = await open(session.client);
      const blocker = await connectSession("pg, a single client");
      await blocker.run("begin");
      await blocker.run("select 1 from holdfast.holdfast_1_buckets for update");
      await session.run("set statement_timeout = 20");
      const answer = driver.claim(makeClaim(KEY));
      await until(
        async () => {
          const text = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%set local%'";
          return (await fixture.database.query(text)).length > 0;
        },
        { within: 10_000, what: "the call to be repeated" },
      );
      await blocker.run("commit");
      expect(await answer).toMatchObject({ state: "held" });
    });

    test("a session with all of them", async () => {
      const plain = await open((await connectSession("pg")).client);
      const session = await connectSession(library);
      const driver = await open(session.client);
      for (const [, text] of [...LEAKED_SETTINGS].sort(byTimeout)) await session.run(text);
      await expectWorks(driver, plain);
    });
  });

  /** Every call of `driver`, and what another process sees of it. */
  async function expectWorks(driver: Driver, plain: Driver): Promise<void> {
    const [held, waiting] = [makeClaim(KEY), makeClaim(KEY)];
    const [refused, tried] = [makeClaim(KEY, { wait: false }), makeClaim(KEY, { wait: false })];
    expect(await driver.claim(held)).toMatchObject({ state: "held" });
    expect(await plain.claim(waiting)).toMatchObject({ state: "waiting" });
    expect(await driver.claim(refused)).toMatchObject({ state: "none" });
    expect(await plain.renew([held])).toMatchObject([{ state: "held" }]);
    expect(await driver.renew([held])).toMatchObject([{ state: "held" }]);
    const { items } = await driver.list({ key: KEY }, { max: 9 });
    expect(items.map(({ locks }) => locks[0].key)).toEqual([KEY, KEY]);
    expect(await driver.detach?.([held])).toEqual([true]);
    expect(await driver.release(toReleases(held))).toEqual([true]);
    const [answer] = await plain.renew([waiting]);
    if (answer?.state !== "held") throw new Error(`the waiting claim is ${answer?.state}`);
    expect(await driver.revoke?.([{ key: KEY, token: answer.token, now: true }])).toEqual([true]);
    expect(await driver.claim(tried)).toMatchObject({ state: "held" });
    expect(await driver.release(toReleases(tried))).toEqual([true]);
  }
});
