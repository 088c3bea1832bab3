// Connections of a pool have the settings of their user: none of them changes which claims are one, or when a lease ends.

import { afterEach, beforeEach, expect, test } from "vitest";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture, Pool } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const HOSTILE_SESSIONS = [
  ["set time_zone = '+05:00'"],
  ["set sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE'"],
  ["set sql_mode = ''", "set completion_type = 1"],
  ["set sql_mode = 'ORACLE'", "set completion_type = 2"],
  ["set autocommit = 0"],
  ["set names latin1"],
  ["set session transaction isolation level serializable", "set innodb_lock_wait_timeout = 1"],
  ["set session collation_connection = utf8mb4_unicode_ci", "set sql_safe_updates = 1", "set sql_select_limit = 1"],
].map((session) => ({ session, text: session.join(" and ") }));

withMariaDb((server) => {
  let fixture: MysqlFixture;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
  });
  afterEach(async () => {
    await fixture.close();
    await fixture.database.drop();
  });

  test.each(HOSTILE_SESSIONS)(
    "sessions that $text create the tables and see the locks of others",
    async ({ session }) => {
      const [other, plain] = [await fixture.open({ session }), await fixture.open()];
      const [held, waiting] = [makeClaim("日本 'key'"), makeClaim("日本 'key'", { ttlMs: 30_000 })];
      const first = await other.claim(held);
      expect(first).toMatchObject({ state: "held" });
      const answer = await plain.claim(waiting);
      expect(answer).toMatchObject({ state: "waiting" });
      expect(await plain.renew([held])).toMatchObject([{ state: "held" }]);
      expect((await other.list({ key: "日本 'key'" }, { max: 9 })).items).toMatchObject([{ label: "test" }, {}]);
      expect(await other.detach?.([held])).toEqual([true]);
      expect(await other.release(toReleases(held))).toEqual([true]);
      expect(await other.renew([waiting])).toMatchObject([{ state: "held" }]);
      expect(await plain.release(toReleases(waiting))).toEqual([true]);
      expect(await other.diagnose?.()).toMatchObject([{ status: "ok", name: "version" }, {}, {}, {}, {}, {}, {}]);
      expect(await fixture.violations(true)).toEqual([]);
    },
  );

  test("a session whose clock was set makes and renews no claims: the lease of another would end by it", async () => {
    const held = makeClaim("key");
    const plain = await fixture.open();
    await plain.claim(held);
    const connection = await fixture
      .pool({ pool: { connectionLimit: 1 } })
      .promise()
      .getConnection();
    const driver = await openOn(connection);
    await connection.query("set timestamp = 1000");
    await Promise.all(
      [
        driver.claim(makeClaim("key")),
        driver.renew([held]),
        driver.release(toReleases(held)),
        driver.detach?.([held]),
      ].map((call) => expect(call).rejects.toThrow(/the clock of this session was set/)),
    );
    expect(await plain.claim(makeClaim("key"))).toMatchObject({ state: "waiting" });
    await driver.close();
  });

  test("a session keeps its settings", async () => {
    const session = ["set sql_mode = 'ANSI_QUOTES'", "set innodb_lock_wait_timeout = 7", "set autocommit = 0"];
    const pool = fixture.pool({ pool: { connectionLimit: 1 }, session });
    const driver = await openOn(pool);
    const [held, refused] = [makeClaim("key"), makeClaim("key", { wait: false })];
    await driver.claim(held);
    await driver.claim(refused);
    await driver.renew([held]);
    await driver.list({ prefix: "" }, { max: 1 });
    await driver.diagnose?.();
    const [rows] = await pool
      .promise()
      .query(
        "select @@sql_mode as mode, @@innodb_lock_wait_timeout as wait, @@autocommit as autocommit, @@tx_isolation as level",
      );
    expect(rows).toEqual([{ mode: "ANSI_QUOTES", wait: 7, autocommit: 0, level: "REPEATABLE-READ" }]);
    await driver.close();
  });

  test("keys are compared byte by byte", async () => {
    const driver = await fixture.open();
    const keys = [
      "a",
      "a ",
      "A",
      "ä",
      "a\u0308",
      "ß",
      "ss",
      "%",
      "_",
      "\\",
      "'; drop table x; -- ",
      '"`',
      "k".repeat(512),
    ];
    const claims = keys.map((key) => makeClaim(key));
    for (const claim of claims) expect(await driver.claim(claim), claim.locks[0].key).toMatchObject({ state: "held" });
    for (const key of keys) {
      const { items } = await driver.list({ key }, { max: 9 });
      expect(items.map(({ locks: [lock] }) => lock.key)).toEqual([key]);
    }
    const { items } = await driver.list({ prefix: "a" }, { max: 99 });
    expect(items.map(({ locks: [lock] }) => lock.key)).toEqual(["a", "a ", "a\u0308"]);
    expect((await driver.list({ prefix: "" }, { max: 99 })).items).toHaveLength(keys.length);
    expect(await driver.release(toReleases(...claims))).toEqual(keys.map(() => true));
    expect(await fixture.violations(true)).toEqual([]);
  });

  test("large numbers arrive exactly", async () => {
    const driver = await fixture.open();
    const { token } = (await driver.claim(makeClaim("clock"))) as { token: bigint };
    // above what a number holds, and less than a day ahead
    const floor = token + 12_345_678_901n;
    const claim = makeClaim([{ key: "key", permits: ALL_PERMITS - 1, limit: ALL_PERMITS }], {
      floor,
      tokenCount: 1_000_000,
    });
    expect(await driver.claim(claim)).toMatchObject({ state: "held", token: floor, tokenCount: 1_000_000 });
    expect((await driver.list({ key: "key" }, { max: 1 })).items).toMatchObject([{ floor, locks: claim.locks }]);
    await driver.release(toReleases(claim));
    const next = makeClaim("key");
    expect(await driver.claim(next)).toMatchObject({ state: "held", token: floor + 1_000_000n });
  });

  test("a floor far ahead of the clock is refused, and uses up no tokens", async () => {
    const driver = await fixture.open();
    for (const floor of [2n ** 53n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 80n])
      await expect(driver.claim(makeClaim("key", { floor }))).rejects.toThrow(/more than a day ahead/);
    expect(await driver.claim(makeClaim("key"))).toMatchObject({ state: "held" });
    expect(await fixture.violations()).toEqual([]);
  });

  async function openOn(pool: Pool | object): Promise<Driver> {
    const driver = mysql(pool, { silenceWarnings: ["durability"] });
    await driver.open(NO_EVENTS);
    return driver;
  }
});
