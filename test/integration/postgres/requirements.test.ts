// What open() creates, verifies and refuses.

import { Pool } from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { postgres, postgresMigration } from "../../../src/drivers/sql/postgres/driver.ts";
import { connect } from "../../../src/index.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { expectRefusedWithoutBucket } from "../../support/stores/missing-bucket.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const fatal = (message: RegExp) => ({ name: "StoreRefusedError", message: expect.stringMatching(message) });

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  const query = (text: string) => fixture.database.query(text);
  const open = (settings: Parameters<PostgresFixture["driver"]>[0] = {}) =>
    fixture.driver({ connectTimeout: 3_000, ...settings }).open(NO_EVENTS);

  test("eight processes that open an empty database at once create one set of tables", async () => {
    const drivers = await Promise.all(Array.from({ length: 8 }, () => fixture.open()));
    const claims = drivers.map(() => makeClaim("key"));
    const answers = await Promise.all(drivers.map(({ driver }, index) => driver.claim(claims[index] as never)));
    expect(answers.filter(({ state }) => state === "held")).toHaveLength(1);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a second open() changes nothing: it takes no lock that calls would wait for", async () => {
    await fixture.open();
    const before = await query("select oid::int, xmin::text from pg_proc where proname ~ '^holdfast_' order by oid");
    expect(before).toHaveLength(25);
    await fixture.open();
    expect(await query("select oid::int, xmin::text from pg_proc where proname ~ '^holdfast_' order by oid")).toEqual(
      before,
    );
  });

  test.each([`we"ird 'schema' {claims} ä; drop`, "Upper"])("schema %j: names are quoted everywhere", async (schema) => {
    const { driver } = await fixture.open({ schema, prefix: "p_1" });
    const claim = makeClaim("key");
    expect((await driver.claim(claim)).state).toBe("held");
    expect((await driver.list({ prefix: "" }, { max: 10 })).items).toHaveLength(1);
    const rows = await query(
      "select nspname::text as name from pg_namespace where oid = (select relnamespace from pg_class where relname = 'p_1_1_claims')",
    );
    expect(rows).toEqual([{ name: schema }]);
  });

  test("operators that another role has put into a schema of the search_path are not called", async () => {
    // each fits the types of a call better than what PostgreSQL has
    await query(`create table stolen (what text);
      create function join_text(text[], text) returns text[] language plpgsql as $$ begin
        insert into stolen values ('text[] || text'); return pg_catalog.array_append($1, $2); end $$;
      create operator || (leftarg = text[], rightarg = text, function = join_text);
      create function join_list(text, text[]) returns text[] language plpgsql as $$ begin
        insert into stolen values ('text || text[]'); return pg_catalog.array_prepend($1, $2); end $$;
      create operator || (leftarg = text, rightarg = text[], function = join_list);
      create function join_number(text, bigint) returns text language plpgsql as $$ begin
        insert into stolen values ('text || bigint'); return pg_catalog.concat($1, $2); end $$;
      create operator || (leftarg = text, rightarg = bigint, function = join_number);
      create function multiply(numeric, int) returns numeric language plpgsql as $$ begin
        insert into stolen values ('numeric * int'); return $1 operator(pg_catalog.*) $2::numeric; end $$;
      create operator * (leftarg = numeric, rightarg = int, function = multiply)`);
    const { driver } = await fixture.open();
    const [held, waiting, last] = [makeClaim("key"), makeClaim("key"), makeClaim("key", { wait: false })];
    for (const claim of [held, waiting, last]) await driver.claim(claim);
    await driver.renew([held, waiting]);
    await driver.detach?.([held]);
    await driver.list({ prefix: "" }, { max: 9 });
    await driver.release(toReleases(held));
    const [answer] = await driver.renew([waiting]);
    if (answer?.state !== "held") throw new Error("not held");
    expect(await driver.revoke?.([{ key: "key", token: answer.token, now: true }])).toEqual([true]);
    expect(await query("select distinct what from stolen")).toEqual([]);
  });

  test.each([
    { schema: "" },
    { schema: "x".repeat(64) },
    { schema: "a$$b" },
    { schema: "pg_foo" },
    { prefix: 'a"b' },
    { prefix: "Big" },
  ])("%j is refused before anything is sent", (options) => {
    expect(() => postgres(new Pool({}), options)).toThrow(TypeError);
    expect(() => postgresMigration(options)).toThrow(TypeError);
  });

  test("createTables: false: missing tables are named with the migration, which creates them", async () => {
    await expect(open({ createTables: false })).rejects.toMatchObject(
      fatal(/missing.*createTables.*postgresMigration/),
    );
    await query(postgresMigration());
    await query(postgresMigration());
    const { driver } = await fixture.open({ createTables: false });
    expect((await driver.claim(makeClaim("key"))).state).toBe("held");
  });

  test("a call whose bucket has no row is refused, and changes nothing", async () => {
    const { driver } = await fixture.open();
    await expectRefusedWithoutBucket({
      driver,
      tables: { buckets: "holdfast.holdfast_1_buckets", claims: "holdfast.holdfast_1_claims" },
      highestToken: "highest_token",
      hasRowLocks: true,
      run: query,
      readClaims: () => query("select * from holdfast.holdfast_1_claims order by arrival"),
    });
  });

  test("the error of a missing bucket row names the migration, which inserts the row", async () => {
    await (await fixture.open()).driver.close();
    await query("delete from holdfast.holdfast_1_buckets where bucket = 0");
    await expect(open()).rejects.toMatchObject(fatal(/rows of the buckets table.*postgresMigration.*HF002/));
    await query(postgresMigration());
    expect((await (await fixture.open()).driver.claim(makeClaim("key"))).state).toBe("held");
  });

  test("tables of another layout are refused, functions of a newer revision are kept", async () => {
    await fixture.open();
    await query("update holdfast.holdfast_layout set revision = 1000");
    await query("comment on function holdfast.holdfast_1_read_clock() is 'newer'");
    await expect(query(postgresMigration())).rejects.toThrow("newer version of Holdfast");
    const { driver } = await fixture.open();
    expect((await driver.claim(makeClaim("key"))).state).toBe("held");
    await query("update holdfast.holdfast_layout set oldest_caller = 1000");
    await expect(open()).rejects.toMatchObject(
      fatal(
        /functions of schema holdfast are of revision 1000, which this version of Holdfast \(revision \d+\) cannot call: use the newer/,
      ),
    );
    await query("update holdfast.holdfast_layout set version = 2");
    await expect(open()).rejects.toMatchObject(fatal(/holdfast_layout.* has layout 2.*uses layout 1/));
  });

  test("functions of an older revision are replaced by open(), or refused if it may not", async () => {
    await fixture.open();
    await query("update holdfast.holdfast_layout set revision = 0, oldest_caller = 0");
    await expect(open({ createTables: false })).rejects.toMatchObject(
      fatal(/are of revision 0, older than \d+.*postgresMigration/),
    );
    await fixture.open();
    expect(await query("select revision > 1 as is_current from holdfast.holdfast_layout")).toEqual([
      { is_current: true },
    ]);
  });

  test("functions that a copy of the tables lacks are created by open(), or missed if it may not", async () => {
    await fixture.open();
    const drop = "drop function holdfast.holdfast_1_walk(text, integer, bigint, bigint, bigint, text, text[])";
    await query(drop);
    await expect(open({ createTables: false })).rejects.toMatchObject(fatal(/are missing.*postgresMigration/));
    const { driver } = await fixture.open();
    const [held, waiting] = [makeClaim("key"), makeClaim("key")];
    expect((await driver.claim(held)).state).toBe("held");
    expect((await driver.claim(waiting)).state).toBe("waiting");
  });

  test("two versions at once, while functions are replaced under load, never hold a key twice", async () => {
    const drivers = await Promise.all(Array.from({ length: 3 }, () => fixture.open()));
    let held = 0;
    let most = 0;
    let isOver = false;
    const work = drivers.map(async ({ driver }) => {
      while (!isOver) {
        const claim = makeClaim("key", { wait: false });
        const answer = await driver.claim(claim).catch(() => null);
        if (answer?.state === "held") most = Math.max(most, ++held);
        await new Promise(setImmediate);
        if (answer?.state === "held") held--;
        await driver.release([{ claim, hasUnansweredClaim: answer === null }]).catch(() => undefined);
      }
    });
    for (let upgrade = 0; upgrade < 5; upgrade++) {
      await query("update holdfast.holdfast_layout set revision = 0, oldest_caller = 0");
      await fixture.open();
      expect(await fixture.inspect()).toEqual([]);
    }
    isOver = true;
    await Promise.all(work);
    expect(most).toBe(1);
  });

  describe("a role", () => {
    const role = (): string => `role_${fixture.database.name}`;
    const roleUrl = (): string => fixture.database.urlOf(role(), "p@ss");
    beforeEach(() => query(`create role ${role()} login password 'p@ss'`));
    afterEach(async () => {
      await fixture.closeDrivers();
      await query(`drop owned by ${role()}; drop role ${role()}`);
    });

    test("with only the rights that the migration names can do everything", async () => {
      const migration = postgresMigration();
      await query(migration);
      const grants = [...migration.matchAll(/^-- (grant .*;)$/gm)].map(([, grant = ""]) =>
        grant.replace("ROLE", role()),
      );
      expect(grants).toHaveLength(5);
      for (const grant of grants) await query(grant);
      const { driver } = await fixture.open({ url: roleUrl() });
      const other = await fixture.open({ url: roleUrl() });
      const [held, waiting] = [makeClaim("key"), makeClaim("key")];
      const answer = await driver.claim(held);
      const token = answer.state === "held" ? answer.token : 0n;
      await other.driver.claim(waiting);
      expect(await driver.detach?.([held])).toEqual([true]);
      expect((await driver.renew([held]))[0]?.state).toBe("held");
      expect((await driver.list({ prefix: "" }, { max: 10 })).items).toHaveLength(2);
      expect(await driver.revoke?.([{ key: "key", token, now: true }])).toEqual([true]);
      expect((await other.driver.renew([waiting]))[0]?.state).toBe("held");
      expect((await driver.diagnose?.())?.filter(({ status }) => status === "fail")).toEqual([]);
    });

    test.each([
      ["the right to create a schema", (): string => "", /lacks a right.*42501/],
      ["the schema", (): string => postgresMigration(), /lacks a right.*42501/],
      [
        "one table",
        (): string =>
          `${postgresMigration()} grant usage on schema holdfast to ${role()};
           grant select, insert, update, delete on all tables in schema holdfast to ${role()};
           revoke delete on holdfast.holdfast_1_claims from ${role()}`,
        /grant select, insert, update, delete on .*holdfast_1_claims/,
      ],
    ] as const)("without %s is refused", async (_, prepare, message) => {
      if (prepare() !== "") await query(prepare());
      await expect(open({ url: roleUrl() })).rejects.toMatchObject(fatal(message));
    });

    test("with a wrong password is refused at once, and the message does not contain it", async () => {
      const opened = open({ url: fixture.database.urlOf(role(), "secret1") });
      await expect(opened).rejects.toMatchObject(fatal(/refuses the login.*28P01/));
      await expect(opened).rejects.not.toMatchObject({ message: expect.stringContaining("secret1") });
    });

    // pg notices it after it has connected, and leaves the connection open: each retry would open another
    test("without a password is refused at once, and no connection is left", async () => {
      const message = expect.stringMatching(/the server asks for a password, and none is given/);
      const opened = connect(fixture.database.urlOf(role(), ""));
      await expect(opened).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED", message });
      expect(process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap")).toEqual([]);
    });

    test("whose sessions are read-only is refused", async () => {
      await query(postgresMigration());
      await query(`grant all on schema holdfast to ${role()}; grant all on all tables in schema holdfast to ${role()}`);
      await query(`alter role ${role()} set default_transaction_read_only = on`);
      await expect(open({ url: roleUrl() })).rejects.toMatchObject(fatal(/read-only.*25006/));
    });
  });

  test("a database that does not exist, or has another encoding, is refused", async () => {
    await expect(open({ url: `${server().url}_missing` })).rejects.toMatchObject(fatal(/does not exist.*3D000/));
    await server().query("create database latin encoding 'LATIN1' template template0");
    await expect(open({ url: server().url.replace(/\/[^/]*$/, "/latin") })).rejects.toMatchObject(
      fatal(/encoding is LATIN1/),
    );
  });

  test("connect() with a url: schema and prefix are the driver's, everything else the library's", async () => {
    const url = `${fixture.database.url}?schema=mine&prefix=pre&application_name=app&silenceWarnings=durability`;
    const locks = await connect(url);
    const lock = await locks.acquire("key");
    const [row] = await query("select count(*)::int as n from mine.pre_1_claims");
    expect(row).toEqual({ n: 1 });
    expect(await query("select 1 as n from pg_stat_activity where application_name = 'app' limit 1")).toHaveLength(1);
    await lock.release();
    await locks.close();
    await expect(connect(`${fixture.database.url}?scheme=mine`)).rejects.toThrow(/no parameter "scheme"/);
    await expect(connect(`${fixture.database.url}?schema=`)).rejects.toThrow(/schema/);
  });

  test("keys are compared byte by byte, and no text of a claim is taken for SQL", async () => {
    const { driver } = await fixture.open();
    const keys = [
      "a",
      "A",
      "a ",
      "\u00e4",
      "a\u0308",
      "'; drop table x; --",
      '"',
      "\\",
      "%",
      "_",
      "{claims}",
      "$1",
      "x".repeat(512),
    ];
    for (const key of keys) {
      const claim = makeClaim(key, { label: `${key}\0\n'` });
      expect((await driver.claim(claim)).state).toBe("held");
      const { items } = await driver.list({ key }, { max: 10 });
      expect(items.map(({ locks, label }) => [locks[0].key, label])).toEqual([[key, `${key}\n'`]]);
    }
    expect(await fixture.inspect()).toEqual([]);
  });
});
