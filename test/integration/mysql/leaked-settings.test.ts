// Other users of a pool leave settings in its sessions: a call works with them and leaves them as they are, or its connection is ended.

import * as mariadb from "mariadb";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture, Pool } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture, emptyTables, markLongInUse } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

/** What the session does, and how to read what it has set; null: the statement is no setting. */
const LEAKED_SETTINGS = [
  ["set session transaction isolation level serializable", "@@tx_isolation"],
  ["set session transaction isolation level read uncommitted", "@@tx_isolation"],
  ["set session transaction read only", "@@tx_read_only"],
  ["set autocommit = 0", "@@autocommit"],
  ["set sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'", "@@sql_mode"],
  ["set sql_mode = 'MSSQL'", "@@sql_mode"],
  ["set sql_mode = 'ORACLE'", "@@sql_mode"],
  ["set sql_mode = 'EMPTY_STRING_IS_NULL,TIME_ROUND_FRACTIONAL'", "@@sql_mode"],
  ["set sql_select_limit = 0", "@@sql_select_limit"],
  ["set sql_select_limit = 1", "@@sql_select_limit"],
  ["set max_statement_time = 0.00001", "@@max_statement_time"],
  ["set innodb_lock_wait_timeout = 0", "@@innodb_lock_wait_timeout"],
  ["set lock_wait_timeout = 0", "@@lock_wait_timeout"],
  ["set time_zone = '-11:00'", "@@time_zone"],
  ["set names latin1", "@@character_set_client"],
  ["set names sjis", "@@collation_connection"],
  ["set character_set_results = utf16", "@@character_set_results"],
  ["set character_set_results = NULL", "@@character_set_results"],
  ["set collation_connection = utf8mb4_turkish_ci", "@@collation_connection"],
  ["set foreign_key_checks = 0, unique_checks = 0", "@@unique_checks"],
  ["set sql_safe_updates = 1", "@@sql_safe_updates"],
  ["set max_join_size = 1", "@@max_join_size"],
  ["set max_sort_length = 8", "@@max_sort_length"],
  ["set completion_type = 1", "@@completion_type"],
  ["set completion_type = 2", "@@completion_type"],
  ["set max_sp_recursion_depth = 255", "@@max_sp_recursion_depth"],
  ["set big_tables = 1", "@@big_tables"],
  ["set optimizer_switch = 'index_merge=off,derived_merge=off,mrr=on'", "@@optimizer_switch"],
  ["set insert_id = 77, last_insert_id = 88", null],
  ["set group_concat_max_len = 4", "@@group_concat_max_len"],
  ["set max_error_count = 0, sql_notes = 0", "@@max_error_count"],
  ["set tmp_table_size = 1024, tmp_memory_table_size = 1024", "@@tmp_table_size"],
  ["set sql_auto_is_null = 1", "@@sql_auto_is_null"],
  ["set innodb_snapshot_isolation = 1", "@@innodb_snapshot_isolation"],
  // the last that is text: the text of another setting would not be understood after it
  ["set collation_connection = utf32_bin", "@@collation_connection"],
  ["set character_set_connection = ucs2", "@@character_set_connection"],
  ["use information_schema", "database()"],
  // its locks are released: nobody else can do it
  ["lock tables other_table write", null],
] as const;

/** No call can set these right. One call fails, and the next one has another connection. */
const ENDING_STATES = [
  ["set timestamp = 1000"],
  ["set sql_log_bin = 0"],
  ["set session binlog_format = STATEMENT"],
  ["set role none"],
  ["begin", "select * from other_table"],
  ["set autocommit = 0", "select * from other_table for update"],
].map((statements) => ({ statements, text: statements.join(", ") }));

/** How far the clock of a session may be off, in seconds: more, and it cannot be told from a change of its offset from UTC. */
const CLOCK_OFFSETS = [-45, -11, -2, 2, 11, 45];

/** Character sets of results that these libraries cannot read. */
const UNREADABLE = [
  ["mysql2", "ucs2"],
  ["mariadb", "ucs2"],
  ["mariadb", "utf16"],
  ["mariadb", "utf16le"],
  ["mariadb", "utf32"],
] as const;

/** Two that a sort by their first bytes confuses. */
const [KEY, NEXT_KEY] = ["\u65e5\u672c \u00e9 '\\ key 1", "\u65e5\u672c \u00e9 '\\ key 2"];

withMariaDb(
  (server) => {
    let fixture: MysqlFixture;
    let plain: Driver;
    const drivers: Driver[] = [];
    beforeAll(async () => {
      fixture = createMysqlFixture(await server().freshDatabase());
      plain = await fixture.open();
      await fixture.database.query("create table other_table (id int) engine = InnoDB");
      await fixture.database.query("create role locker");
      await fixture.database.query("create user app identified by 'secret'");
      await fixture.database.query(
        `grant select, insert, update, delete, execute, lock tables on ${fixture.database.name}.* to locker`,
      );
      await fixture.database.query("grant binlog admin, replication master admin on *.* to app");
      await fixture.database.query("grant locker to app");
      await fixture.database.query("set default role locker for app");
    });
    afterEach(async () => {
      for (const driver of drivers.splice(0)) await driver.close();
      await emptyTables(fixture.database);
    });
    afterAll(async () => {
      await fixture.close();
      await fixture.database.drop();
    });

    /** A pool with one session. */
    const connectPool = (user?: string): Pool => {
      const uri = user === undefined ? fixture.database.url : fixture.database.urlOf(user, "secret");
      return fixture.pool({ pool: { uri, connectionLimit: 1 } });
    };
    const openOn = async (pool: object, options: object = {}): Promise<Driver> => {
      const driver = mysql(pool, { silenceWarnings: ["durability", "guardDataLoss"], ...options });
      await driver.open(NO_EVENTS);
      drivers.push(driver);
      return driver;
    };

    test.each(LEAKED_SETTINGS)("%s: every call works, and the session keeps it", async (text, name) => {
      const pool = connectPool();
      const driver = await openOn(pool);
      const run = async (statement: string): Promise<unknown> => (await pool.promise().query(statement))[0];
      const state = `select connection_id() as id, ${name ?? "0"} as value limit 1`;
      await run(text);
      const before = await run(state);
      await expectWorks(driver);
      expect(await run(state)).toEqual(before);
      await run("rollback and no chain no release");
      // another one may be opened on it
      await expectWorks(await openOn(pool));
    });

    test("an error behind other claims leaves the settings as they were", async () => {
      const pool = connectPool();
      const driver = await openOn(pool);
      for (const text of ["set max_join_size = 1, unique_checks = 0", "set time_zone = '-11:00'"])
        await pool.promise().query(text);
      const state = "select connection_id() as id, @@sql_big_selects a, @@unique_checks b, @@time_zone c limit 1";
      const [before] = await pool.promise().query(state);
      const bucket = toBucket(KEY);
      const [rows] = await fixture.database.query(`select last_token from holdfast_4_buckets where bucket = ${bucket}`);
      await fixture.database.query(`delete from holdfast_4_buckets where bucket = ${bucket}`);
      await expect(driver.claim(makeClaim(KEY))).rejects.toThrow(/missing/);
      await fixture.database.query(
        `insert into holdfast_4_buckets (bucket, last_token) values (${bucket}, ${rows?.last_token})`,
      );
      expect((await pool.promise().query(state))[0]).toEqual(before);
      await expectWorks(driver);
    });

    test("a table that is locked for a moment, in a session with time-outs of 0, costs no lock and no request", async () => {
      const pool = connectPool();
      const locks = createLocks(mysql(pool, { silenceWarnings: ["durability"] }), { ttl: 6_000 });
      const held = await locks.acquire(KEY);
      await pool.promise().query("set lock_wait_timeout = 0, innodb_lock_wait_timeout = 0");
      const other = await fixture.pool().promise().getConnection();
      await other.query("lock tables holdfast_4_claims write, holdfast_4_buckets write");
      const request = locks.acquire(NEXT_KEY, { wait: "20s" });
      // the first renewal is due after a third of the lease
      await expect(until(() => held.signal.aborted, { within: 2_500, what: "a loss" })).rejects.toThrow(/in vain/);
      await other.query("unlock tables");
      other.release();
      await (await request).release();
      expect(await held.release()).toBe(true);
      await locks.close();
    });

    test("all of them", async () => {
      const pool = connectPool();
      const driver = await openOn(pool);
      const last = (text: string): number => Number(/max_statement_time/.test(text));
      for (const [text] of LEAKED_SETTINGS.filter(([, name]) => name !== null).sort(
        ([left], [right]) => last(left) - last(right),
      ))
        await pool.promise().query(text);
      await expectWorks(driver);
    });

    test.each(ENDING_STATES)("$text: the connection is ended, so the next call works", async ({ statements }) => {
      const pool = connectPool("app");
      const driver = await openOn(pool);
      const connection = await pool.promise().getConnection();
      for (const text of statements) await connection.query(text);
      connection.release();
      await expect(driver.claim(makeClaim(KEY))).rejects.toThrow(/^mysql: /);
      await expectWorks(driver);
    });

    test.each(CLOCK_OFFSETS)(
      "set timestamp %i s off: leases are by the real time, so no other client holds them",
      async (offset) => {
        const pool = connectPool();
        const driver = await openOn(pool);
        await setClock(pool, offset);
        const [before] = await pool.promise().query("select @@timestamp as clock, connection_id() as id");
        for (const [first, second] of [
          [driver, plain],
          [plain, driver],
        ] as const) {
          const held = makeClaim(KEY, { ttlMs: 10_000 });
          expect(await first.claim(held)).toMatchObject({ state: "held" });
          expect(await second.claim(makeClaim(KEY, { wait: false }))).toEqual({ state: "none" });
          await expectLeaseEnds("select max(expires) as at from holdfast_4_claims", 10_000);
          for (const renewing of [driver, plain]) {
            expect(await renewing.renew([held])).toMatchObject([{ state: "held" }]);
            expect(await first.claim(makeClaim(KEY, { wait: false }))).toEqual({ state: "none" });
            expect(await second.claim(makeClaim(KEY, { wait: false }))).toEqual({ state: "none" });
          }
          const [item] = (await driver.list({ key: KEY }, { max: 9 })).items;
          expect(item).toMatchObject({ answer: { state: "held", remainingMs: expect.closeTo(9_500, -3) } });
          expect(item?.ageMs).toBeLessThan(1_000);
          expect(await second.release(toReleases(held))).toEqual([true]);
          // alone in the row of its bucket
          await emptyTables(fixture.database);
          await fixture.database.query("update holdfast_4_buckets set form = 'free', used = null");
          expect(await first.claim(held)).toMatchObject({ state: "held" });
          await expectLeaseEnds("select max(expires) as at from holdfast_4_buckets where form = 'lone'", 10_000);
          expect(await second.release(toReleases(held))).toEqual([true]);
        }
        await expectWorks(driver);
        expect((await pool.promise().query("select @@timestamp as clock, connection_id() as id"))[0]).toEqual(before);
      },
    );

    test.each([-45, 45])("set timestamp %i s off: a grace period has its length", async (offset) => {
      const pool = connectPool();
      const driver = await openOn(pool, { guardDataLoss: { maxTtlMs: 10_000 } });
      await markLongInUse(fixture.database);
      await fixture.database.query("update holdfast_4_identity set sequence = 0");
      await setClock(pool, offset);
      expect(await driver.claim(makeClaim(KEY, { ttlMs: 5_000, wait: false }))).toMatchObject({ state: "none" });
      await expectLeaseEnds("select grace_ends as at from holdfast_4_identity", 10_000);
      await fixture.database.query("update holdfast_4_identity set grace_begins = 0, grace_ends = 0");
    });

    test.each(UNREADABLE)("%s, set character_set_results = %s: the connection is ended", async (library, name) => {
      const url = fixture.database.url.replace(/^mysql:/, "mariadb:");
      const pool: { query(text: string): Promise<unknown>; end(): Promise<void> } =
        library === "mysql2" ? connectPool().promise() : mariadb.createPool(`${url}?connectionLimit=1`);
      const driver = await openOn(pool);
      await pool.query(`set character_set_results = ${name}`);
      await expect(driver.claim(makeClaim(KEY))).rejects.toThrow(/^mysql: .* a character set that the client library/);
      await emptyTables(fixture.database);
      await expectWorks(driver);
      await pool.query(`set character_set_results = ${name}`);
      await expectWorks(await openOn(pool));
      if (library === "mariadb") await pool.end();
    });

    test("a server whose own limit of rows is one is what it is, and keeps locks", async () => {
      await fixture.database.query("set global sql_select_limit = 1");
      const driver = await openOn(connectPool());
      await fixture.database.query("set global sql_select_limit = 18446744073709551615");
      expect(await driver.diagnose?.()).toContainEqual({
        status: "ok",
        name: "version",
        message: expect.stringMatching(/^MariaDB/),
      });
      await expectWorks(driver);
    });

    test("a pool whose first connection is in another database opens that of its settings", async () => {
      const other = await server().freshDatabase();
      const pool = connectPool();
      await pool.promise().query(`use ${other.name}`);
      await expectWorks(await openOn(pool));
      expect(await other.query("show tables")).toEqual([]);
      await other.drop();
    });

    test("sessions in other time zones see one identity of the database, and no loss of data", async () => {
      const options = { guardDataLoss: { maxTtlMs: 10_000 } };
      await openOn(connectPool(), options);
      await markLongInUse(fixture.database);
      for (const zone of ["+05:00", "-11:00", "SYSTEM"]) {
        const pool = connectPool();
        await pool.promise().query(`set time_zone = '${zone}'`);
        const driver = await openOn(pool, options);
        const claim = makeClaim(KEY, { wait: false, ttlMs: 5_000 });
        expect(await driver.claim(claim), zone).toMatchObject({ state: "held" });
        await driver.release(toReleases(claim));
      }
    });

    /** The clock of the pool's session, which stands still from now on. */
    async function setClock(pool: Pool, offset: number): Promise<void> {
      await pool.promise().query(`set timestamp = unix_timestamp(sysdate(6)) + (${offset})`);
    }

    /** A time in the tables, by the real time. */
    async function expectLeaseEnds(text: string, ms: number): Promise<void> {
      const [row] = await fixture.database.query(
        `select (${text}) div 1000 - floor(unix_timestamp(now(3)) * 1000) as ms`,
      );
      expect(Number(row?.ms)).toBeGreaterThan(ms - 1_000);
      expect(Number(row?.ms)).toBeLessThanOrEqual(ms + 1);
    }

    /** Every call of `driver`, and what another process sees of it. */
    async function expectWorks(driver: Driver): Promise<void> {
      const [held, waiting, next, behind] = [makeClaim(KEY), makeClaim(KEY), makeClaim(NEXT_KEY), makeClaim(KEY)];
      const [refused, tried] = [makeClaim(KEY, { wait: false }), makeClaim(KEY, { wait: false })];
      expect(await driver.claim(next)).toMatchObject({ state: "held" });
      expect(await driver.claim(held)).toMatchObject({ state: "held" });
      expect(await plain.claim(waiting)).toMatchObject({ state: "waiting" });
      expect(await driver.claim(behind)).toMatchObject({ state: "waiting" });
      expect(await driver.claim(refused)).toMatchObject({ state: "none" });
      expect(await plain.renew([held])).toMatchObject([{ state: "held" }]);
      expect(await driver.renew([held, behind])).toMatchObject([{ state: "held" }, { state: "waiting" }]);
      expect(await listKeys(driver)).toEqual([KEY, KEY, KEY, NEXT_KEY]);
      expect(await driver.detach?.([held])).toEqual([true]);
      expect(await driver.release(toReleases(held, behind))).toEqual([true, true]);
      const [answer] = await plain.renew([waiting]);
      if (answer?.state !== "held") throw new Error(`the waiting claim is ${answer?.state}`);
      expect(await driver.revoke?.([{ key: KEY, token: answer.token, now: true }])).toEqual([true]);
      expect(await driver.claim(tried)).toMatchObject({ state: "held" });
      expect(await driver.release(toReleases(tried, next))).toEqual([true, true]);
      expect(await fixture.violations(true)).toEqual([]);
    }

    async function listKeys(driver: Driver): Promise<readonly string[]> {
      const { items } = await driver.list({ prefix: "" }, { max: 9 });
      return items.map(({ locks: [lock] }: Pick<Claim, "locks">) => lock.key);
    }
  },
  { settings: { "log-bin": "binary-log", "binlog-format": "ROW", "server-id": "1" } },
);
