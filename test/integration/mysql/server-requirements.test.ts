// What open() creates, what it refuses, and which rights it needs.

import { execFileSync } from "node:child_process";
import { createConnection, createPool } from "mysql2";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { mysql, mysqlMigration } from "../../../src/drivers/sql/mysql/driver.ts";
import { REVISION } from "../../../src/drivers/sql/mysql/migration.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { startMariaDb } from "../../support/stores/mariadb.ts";
import { expectRefusedWithoutBucket } from "../../support/stores/missing-bucket.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

/** What an open that fails says. */
async function refused(driver: Driver): Promise<string> {
  const error = await driver.open(NO_EVENTS).then(
    () => null,
    (failure: unknown) => failure as Error & { code?: string },
  );
  return `${error?.code}: ${error?.message}`;
}

withMariaDb((server) => {
  let fixture: MysqlFixture;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
  });
  afterEach(async () => {
    await fixture.close();
    await fixture.database.drop();
  });

  /** A user of this database with these rights, and a driver in its name. */
  const userDriver = async (name: string, rights: string, createTables: boolean): Promise<Driver> => {
    const { database } = fixture;
    await database.query(`create or replace user ${name} identified by 'secret'`);
    await database.query(`grant ${rights} on ${database.name}.* to ${name}`);
    return fixture.driver({ pool: { uri: database.urlOf(name, "secret") }, driver: { createTables } });
  };

  const lockOnce = async (driver: Driver): Promise<void> => {
    const claim = makeClaim("key");
    expect(await driver.claim(claim)).toMatchObject({ state: "held" });
    expect(await driver.renew([claim])).toMatchObject([{ state: "held" }]);
    expect(await driver.release(toReleases(claim))).toEqual([true]);
  };

  describe("the tables", () => {
    test("16 drivers that open at the same time find one set of tables", async () => {
      const options = { pool: { connectionLimit: 1 }, driver: { connectTimeout: 15_000 } };
      await Promise.all(Array.from({ length: 16 }, () => fixture.open(options)));
      expect(await fixture.violations(true)).toEqual([]);
      expect(await fixture.database.query("select version from holdfast_layout")).toEqual([{ version: 4 }]);
    });

    test("the trial claim of open() is in no list: its lease is over when it begins", async () => {
      await fixture.open();
      await fixture.database.query("create table trials (lease bigint)");
      await fixture.database.query(
        "create trigger trial before delete on holdfast_4_claims for each row insert into trials values (old.expires - old.created)",
      );
      await fixture.open();
      expect(await fixture.database.query("select lease from trials")).toEqual([{ lease: "0" }]);
    });

    test("a second open changes nothing", async () => {
      await fixture.open();
      const created = await fixture.database.query("show procedure status like 'holdfast%'");
      expect(created).toHaveLength(18);
      await fixture.open();
      expect(await fixture.database.query("show procedure status like 'holdfast%'")).toEqual(created);
    });

    test.each([false, true])(
      "the migration, run by the program mariadb, creates what open() needs (qualified: %s)",
      async (isQualified) => {
        const { name } = fixture.database;
        const options = { prefix: "app", ...(isQualified && { database: name }) };
        const migration = mysqlMigration(options);
        // tools for migrations may turn autocommit off
        for (const setting of ["", "SET autocommit = 0;\n"]) {
          const where = ["--no-defaults", "-h127.0.0.1", `-P${server().port}`, "-uroot"];
          const input = `${setting}${migration}\nCOMMIT;`;
          execFileSync("/usr/bin/mariadb", [...where, isQualified ? "mysql" : name], { input });
        }
        const driver = await fixture.open({ driver: { prefix: "app", createTables: false } });
        await lockOnce(driver);
      },
    );

    test("without them createTables: false says what to run", async () => {
      const { driver } = fixture;
      expect(await refused(driver({ driver: { createTables: false } }))).toMatch(
        /^LOCK_STORE_REFUSED: mysql: tables are missing: let open\(\) create them .*mysqlMigration\(\)/,
      );
    });

    test("tables in another layout are refused", async () => {
      await fixture.open();
      await fixture.database.query("update holdfast_layout set version = 2");
      expect(await refused(fixture.driver())).toMatch(/holdfast_layout` has layout 2, .* uses layout 4/);
    });

    test("procedures of a lower revision are replaced, those of a higher one are kept", async () => {
      const readComments = async (): Promise<unknown[]> => {
        const rows = await fixture.database.query(
          "select routine_comment as c from information_schema.routines where routine_schema = database()",
        );
        return [...new Set(rows.map(({ c }) => c))];
      };
      await fixture.open();
      expect(await readComments()).toEqual([`Holdfast, revision ${REVISION}, for callers from revision 14`]);
      await fixture.database.query(
        "alter procedure holdfast_4_walk comment 'Holdfast, revision 1, for callers from revision 1'",
      );
      expect(await refused(fixture.driver({ driver: { createTables: false } }))).toMatch(
        /an older version of Holdfast/,
      );
      await fixture.open();
      expect(await readComments()).toEqual([`Holdfast, revision ${REVISION}, for callers from revision 14`]);
      const procedures = await fixture.database.query(
        "select routine_name as name from information_schema.routines where routine_schema = database()",
      );
      for (const { name } of procedures)
        await fixture.database.query(
          `alter procedure ${name} comment 'Holdfast, revision 99, for callers from revision 8'`,
        );
      await lockOnce(await fixture.open());
      expect(await readComments()).toEqual(["Holdfast, revision 99, for callers from revision 8"]);
      await fixture.database.query(
        "alter procedure holdfast_4_walk comment 'Holdfast, revision 99, for callers from revision 99'",
      );
      expect(await refused(fixture.driver())).toMatch(
        /procedures of database .* are of revision 99, which this version of Holdfast \(revision \d+\) cannot call: use the newer/,
      );
    });

    test("a call while tables are missing says so, and is no reason to give up", async () => {
      const driver = await fixture.open();
      await fixture.database.query("drop table holdfast_4_claims");
      const error = await driver.claim(makeClaim("key")).catch((failure: Error & { code?: string }) => failure);
      expect(error).toMatchObject({ code: "ER_NO_SUCH_TABLE" });
      expect(String(error)).toMatch(/tables or procedures are missing/);
    });

    test("a call whose bucket has no row is refused, and changes nothing", async () => {
      await expectRefusedWithoutBucket({
        driver: await fixture.open(),
        tables: { buckets: "holdfast_4_buckets", claims: "holdfast_4_claims" },
        hasRowLocks: true,
        run: (text) => fixture.database.query(text),
        readClaims: () => fixture.database.query("select * from holdfast_4_claims order by arrival"),
      });
    });

    test("another database and another prefix have locks of their own", async () => {
      const other = await server().freshDatabase();
      const claims = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
      const drivers = [
        await fixture.open(),
        await fixture.open({ driver: { prefix: "other" } }),
        await fixture.open({ driver: { database: other.name } }),
      ];
      for (const [index, driver] of drivers.entries())
        expect(await driver.claim(claims[index] as (typeof claims)[0])).toMatchObject({ state: "held" });
      expect(await other.query("select count(*) as count from holdfast_4_claims")).toEqual([{ count: "1" }]);
      await other.drop();
    });
  });

  test.each(["0", "1"])(
    "names of any case and of the greatest length, with lower_case_table_names = %s",
    async (value) => {
      const isFolded = value === "1";
      const other = isFolded ? await startMariaDb({ settings: { "lower-case-table-names": value } }) : server();
      if (isFolded) onTestFinished(() => other.dispose());
      const name = `Mixed "Case" \`${"x".repeat(64 - 15)}`;
      await other.query(`create database \`${name.replace("`", "``")}\``);
      const pool = createPool({ uri: other.url });
      onTestFinished(() => pool.promise().end());
      const prefix = "p".repeat(32);
      const open = async (database: string): Promise<Driver> => {
        const driver = mysql(pool, { database, prefix, silenceWarnings: ["durability"] });
        await driver.open(NO_EVENTS);
        return driver;
      };
      const [one, again] = [await open(name), await open(isFolded ? name.toUpperCase() : name)];
      expect(await one.claim(makeClaim("key"))).toMatchObject({ state: "held" });
      expect(await again.claim(makeClaim("key", { wait: false }))).toEqual({ state: "none" });
      expect(await again.claim(makeClaim("KEY"))).toMatchObject({ state: "held" });
      expect((await one.list({ prefix: "" }, { max: 9 })).items).toHaveLength(2);
      if (!isFolded) await expect(open(name.toUpperCase())).rejects.toThrow(/the database does not exist/);
      await one.close();
      await again.close();
    },
  );

  describe("the user's rights", () => {
    test("EXECUTE and rights on rows are enough once the tables exist", async () => {
      await fixture.open();
      const driver = await userDriver("least", "select, insert, update, delete, execute", true);
      await driver.open(NO_EVENTS);
      const [claim, waiting] = [makeClaim("key"), makeClaim("key")];
      const held = await driver.claim(claim);
      expect(await driver.claim(waiting)).toMatchObject({ state: "waiting" });
      expect(await driver.detach?.([claim])).toEqual([true]);
      expect((await driver.list({ prefix: "" }, { max: 9 })).items).toHaveLength(2);
      const { token } = held as { token: bigint };
      expect(await driver.revoke?.([{ key: "key", token, now: true }])).toEqual([true]);
      expect(await driver.release(toReleases(waiting))).toEqual([true]);
      expect((await driver.diagnose?.())?.map(({ status }) => status)).not.toContain("fail");
    });

    test.each([
      ["select, insert, update, delete", /no right to EXECUTE them/],
      ["select, insert, update, execute", /lacks a right.*grants/],
      ["select, insert, delete, execute", /lacks a right.*grants/],
    ])("%s are too few, and open() says so", async (rights, message) => {
      await fixture.open();
      expect(await refused(await userDriver("few", rights, false))).toMatch(message);
    });

    test("a user that may not create tables or procedures learns which rights it lacks", async () => {
      expect(await refused(await userDriver("reader", "select, insert, update, delete, execute", true))).toMatch(
        /^LOCK_STORE_REFUSED: mysql: tables are missing, and this user cannot create them: this user lacks a right; the comments of mysqlMigration\(\)/,
      );
      expect(mysqlMigration({ database: "app" })).toContain(
        "grant select, insert, update, delete, execute on `app`.* to USER;",
      );
      const creator = await userDriver(
        "creator",
        "select, insert, update, delete, execute, create, create routine, alter routine",
        true,
      );
      await creator.open(NO_EVENTS);
      await lockOnce(creator);
      // with the tables there, EXECUTE is all that is missing
      expect(await refused(await userDriver("caller", "select, insert, update, delete", true))).toMatch(
        /^LOCK_STORE_REFUSED: mysql: procedures are missing, or this user has no right to EXECUTE them .*cannot create them: this user lacks a right/,
      );
    });

    test("a wrong password and an unknown database are fatal, and no message contains the password", async () => {
      const { port } = server();
      for (const url of [`mysql://root:hunter2@127.0.0.1:${port}/mysql`, `mysql://root@127.0.0.1:${port}/nowhere`]) {
        const error = await connect(url).catch((failure: Error & { code?: string }) => failure);
        expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED" });
        expect(String(error)).not.toContain("hunter2");
      }
    });

    test("a client without a database needs the option", async () => {
      const { port } = server();
      const pool = { uri: `mysql://root@127.0.0.1:${port}` };
      expect(await refused(fixture.driver({ pool }))).toMatch(/have no database: name one in the url, /);
      await fixture.open({ pool, driver: { database: fixture.database.name } });
    });
  });

  describe("a transaction of the user", () => {
    test("an open one is neither committed nor rolled back, and the call is refused", async () => {
      const { url, query } = fixture.database;
      await query("create table work (n int)");
      const client = createConnection({ uri: url });
      const run = (text: string): Promise<unknown> => client.promise().query(text);
      const driver = mysql(client, { silenceWarnings: ["durability"] });
      await run("begin");
      await run("insert into work values (1)");
      expect(await refused(driver)).toMatch(/a transaction is open on this connection|became part of a transaction/);
      expect(await query("select * from work")).toEqual([]);
      await run("commit");
      await driver.open(NO_EVENTS);
      const claim = makeClaim("key");
      expect(await driver.claim(claim)).toMatchObject({ state: "held" });
      await run("begin");
      await run("insert into work values (2)");
      await expect(driver.renew([claim])).rejects.toThrow(/a transaction is open on this connection/);
      await expect(driver.release(toReleases(claim))).rejects.toThrow(/a transaction is open/);
      await expect(driver.list({ prefix: "" }, { max: 1 })).rejects.toThrow(/a transaction is open/);
      expect(await query("select * from work")).toEqual([{ n: 1 }]);
      await run("insert into work values (3)");
      await run("commit");
      expect(await query("select * from work")).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
      expect(await driver.release(toReleases(claim))).toEqual([true]);
      await driver.close();
      client.destroy();
    });
  });

  describe("the server's settings", () => {
    const withGlobal = async (name: string, value: string, work: () => Promise<void>): Promise<void> => {
      const [before] = await server().query(`select @@global.${name} as value`);
      await server().query(`set global ${name} = ${value}`);
      try {
        await work();
      } finally {
        await server().query(`set global ${name} = ${before?.value}`);
      }
    };

    test("a read-only server is refused; one that becomes read-only is explained", async () => {
      await userDriver("plain", "all privileges", true);
      const options = { pool: { uri: fixture.database.urlOf("plain", "secret") } };
      const driver = await fixture.open(options);
      await withGlobal("read_only", "1", async () => {
        expect(await refused(fixture.driver(options))).toMatch(
          /LOCK_STORE_REFUSED: .*read-only: connect to the primary/,
        );
        const error = await driver.claim(makeClaim("key")).catch((failure: Error & { code?: string }) => failure);
        expect(error).toMatchObject({ code: "ER_OPTION_PREVENTS_STATEMENT" });
        expect(await driver.diagnose?.()).toContainEqual(expect.objectContaining({ name: "role", status: "fail" }));
      });
      await lockOnce(driver);
    });

    test("a server without a clock that a session cannot set is refused", async () => {
      const other = await startMariaDb({ settings: { "sysdate-is-now": "ON" } });
      onTestFinished(() => other.dispose());
      const { url } = await other.freshDatabase();
      expect(await refused(fixture.driver({ pool: { uri: url } }))).toMatch(
        /^LOCK_STORE_REFUSED: mysql: the server runs with --sysdate-is-now, .*: start it without that option/,
      );
    });

    test("a server that loses commits in a crash of its machine is warned of", async () => {
      const warnings: string[] = [];
      await fixture.open({ driver: { warn: (warning) => warnings.push(warning), silenceWarnings: [] } });
      expect(warnings).toEqual([expect.stringMatching(/^mysql: innodb_flush_log_at_trx_commit is 2: .*; set innodb_/)]);
      await withGlobal("innodb_flush_log_at_trx_commit", "1", async () => {
        await fixture.open({ driver: { warn: (warning) => warnings.push(warning), silenceWarnings: [] } });
      });
      expect(warnings).toHaveLength(1);
    });
  });
});

describe("a server with a binary log", () => {
  withMariaDb(
    (server) => {
      test("of statements is refused, since it refuses READ COMMITTED; a mixed one is used", async () => {
        const fixture = createMysqlFixture(await server().freshDatabase());
        expect(await refused(fixture.driver())).toMatch(/LOCK_STORE_REFUSED: .*set binlog_format to MIXED or ROW/);
        await server().query("set global binlog_format = 'MIXED'");
        const driver = await fixture.open();
        await lockTwice(driver);
        await fixture.close();
      });
    },
    { settings: { "log-bin": "binary-log", "binlog-format": "STATEMENT", "server-id": "1" } },
  );

  async function lockTwice(driver: Driver): Promise<void> {
    for (let round = 0; round < 2; round++) {
      const claim = makeClaim("key");
      expect(await driver.claim(claim)).toMatchObject({ state: "held" });
      expect(await driver.release(toReleases(claim))).toEqual([true]);
    }
  }
});
