// What diagnose() says of transactions for which the server keeps the old versions of rows.

import { setTimeout } from "node:timers/promises";
import type { Connection } from "mysql2/promise";
import { createConnection } from "mysql2/promise";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Check, Driver } from "../../../src/spi/driver.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDbClock } from "../../support/stores/sql-fixture.ts";

const MINUTE_MS = 60_000;
const OK = {
  status: "ok",
  name: "purge",
  message: expect.stringMatching(/^old rows of \d+ transactions are not purged yet$/),
};
const SECRET = "select 'a secret' from rows_of_it";

withMariaDbClock((server, clock) => {
  let fixture: MysqlFixture;
  const sessions: Connection[] = [];
  beforeEach(async () => {
    clock().shift(0);
    fixture = createMysqlFixture(await server().freshDatabase());
    await fixture.database.query("create table rows_of_it (n int)");
    await fixture.database.query("insert into rows_of_it values (0)");
  });
  afterEach(async () => {
    for (const connection of sessions.splice(0)) await connection.end();
    await fixture.close();
    await fixture.database.drop();
  });

  const check = async (driver: Driver): Promise<Check | undefined> =>
    (await driver.diagnose?.())?.find(({ name }) => name === "purge");

  /** A transaction that ends with the test. */
  const begin = async (isolation: string): Promise<void> => {
    const connection = await createConnection({ uri: fixture.database.url });
    sessions.push(connection);
    for (const text of [`set transaction isolation level ${isolation}`, "begin", SECRET]) await connection.query(text);
    // innodb_trx is a copy, which the server renews when nobody has read it for 0.1 s
    await setTimeout(200);
  };

  const limitedDriver = async (): Promise<Driver> => {
    const { database } = fixture;
    await database.query("create or replace user limited identified by 'secret'");
    await database.query(`grant select, insert, update, delete, execute on ${database.name}.* to limited`);
    return fixture.open({ pool: { uri: database.urlOf("limited", "secret") } });
  };

  test.each(["SYSTEM", "+10:00"])(
    "a transaction that is open for more than five minutes is named, in a session of time zone %s",
    async (zone) => {
      const driver = await fixture.open({ session: [`set time_zone = '${zone}'`] });
      await begin("repeatable read");
      clock().shift(4 * MINUTE_MS);
      expect(await check(driver)).toEqual(OK);
      clock().shift(6 * MINUTE_MS);
      const found = await check(driver);
      expect(found).toMatchObject({
        status: "warn",
        message: expect.stringMatching(
          /^a transaction \(connection \d+ of user "root"\) is open for 6 m; old rows of \d+ transactions are not purged yet, which makes busy keys slower$/,
        ),
      });
      expect(JSON.stringify(found)).not.toContain("secret");
      const warnings: string[] = [];
      const warn = (warning: string): void => void warnings.push(warning);
      await fixture.open({ driver: { warn, silenceWarnings: ["durability", "purge"] } });
      expect(warnings).toEqual([]);
      await fixture.open({ driver: { warn } });
      expect(warnings).toEqual([expect.stringMatching(/^mysql: a transaction .*; commit or roll it back/)]);
    },
  );

  test("an idle one at read committed keeps nothing", async () => {
    const driver = await fixture.open();
    await begin("read committed");
    clock().shift(6 * MINUTE_MS);
    expect(await check(driver)).toEqual(OK);
  });

  test("a user without the right PROCESS learns how much is not purged", async () => {
    await (await fixture.open()).close();
    const driver = await limitedDriver();
    await begin("repeatable read");
    clock().shift(6 * MINUTE_MS);
    expect(await check(driver)).toEqual(OK);
    await fixture.database.query("begin not atomic for i in 1..100100 do update rows_of_it set n = i; end for; end");
    expect(await check(driver)).toMatchObject({
      status: "warn",
      message: expect.stringMatching(/^old rows of 1\d{5} transactions are not purged yet, which makes/),
      hint: expect.stringContaining("innodb_trx"),
    });
  });
});
