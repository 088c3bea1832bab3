/** The option guardDataLoss on a MariaDB that restarts, or whose tables are restored from a dump, created anew, or lose rows. */

import type { RowDataPacket } from "mysql2/promise";
import { createConnection } from "mysql2/promise";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { MysqlOptions } from "../../../src/drivers/sql/mysql/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { toReleases } from "../../support/releases.ts";
import { expectHeld } from "../../support/server-fixture.ts";
import type { LossScenario } from "../../support/stores/data-loss-scenario.ts";
import {
  exclusive,
  expectHoldersInOrder,
  expectLockKept,
  expectNoLossAfterEnd,
  expectNotRestoredAfterSleep,
  MAX_TTL_MS,
  PAUSE,
} from "../../support/stores/data-loss-scenario.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture, markLongInUse } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../../support/stores/sql-inspector.ts";

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let warnings: string[];
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    warnings = [];
  });
  afterEach(() => fixture.close());

  const open = (options: MysqlOptions = {}): Promise<Driver> =>
    fixture.open({
      driver: { guardDataLoss: { maxTtlMs: MAX_TTL_MS }, warn: (text) => warnings.push(text), ...options },
    });
  const query = (text: string) => fixture.database.query(text);
  const endGracePeriod = () => query("update holdfast_4_identity set grace_begins = 0, grace_ends = 0");

  async function createScenario(lose: () => Promise<unknown>, backUp?: () => Promise<unknown>): Promise<LossScenario> {
    const holder = await open();
    await markLongInUse(fixture.database);
    return {
      holder,
      other: await open(),
      backUp: backUp ?? (async () => undefined),
      lose,
      endGracePeriod,
      inspect: (isPaused) => findMySqlViolations(query, { isPaused }),
    };
  }

  /** What mariadb-dump writes: each table is dropped, created and filled. */
  async function dump(): Promise<readonly string[]> {
    const connection = await createConnection(fixture.database.url);
    const [tables] = await connection.query<RowDataPacket[]>("show tables");
    const statements: string[] = [];
    for (const name of tables.flatMap((row) => Object.values(row) as string[])) {
      const [[created]] = await connection.query<RowDataPacket[]>(`show create table ${name}`);
      statements.push(`drop table ${name}`, String(created?.["Create Table"]));
      const [rows] = await connection.query<RowDataPacket[]>({
        sql: `select * from ${name}`,
        rowsAsArray: true,
        supportBigNumbers: true,
        bigNumberStrings: true,
      });
      if (rows.length > 0) statements.push(connection.format(`insert into ${name} values ?`, [rows]));
    }
    await connection.end();
    return statements;
  }

  async function restoreDump(statements: readonly string[]): Promise<void> {
    const connection = await createConnection(fixture.database.url);
    for (const text of statements) await connection.query(text);
    await connection.end();
  }

  const dumped = (): Promise<LossScenario> => {
    let statements: readonly string[] = [];
    const backUp = async (): Promise<void> => {
      statements = await dump();
    };
    return createScenario(async () => {
      // the time of a table's creation has seconds
      await until(
        async () =>
          Number(
            (
              await query(`select count(*) as n from information_schema.tables
        where table_schema = database() and create_time >= now() - interval 1 second`)
            )[0]?.n,
          ) === 0,
        {
          within: 10_000,
          what: "another second",
        },
      );
      await restoreDump(statements);
    }, backUp);
  };

  test("a dump restored into a running server: no lock of a live holder is granted, which keeps it with its token", async () => {
    await expectLockKept(await dumped());
  });

  test("of holders that could not have held together those with the lowest tokens end; the others stay, in order", async () => {
    await expectHoldersInOrder(await dumped());
  });

  test("rows that only vanish are missed by their holder: a grace period begins when it renews", async () => {
    const scenario = await createScenario(() => query("truncate holdfast_4_claims"));
    await expectLockKept({ ...scenario, isSeenByHolderOnly: true });
  });

  test("a claim that is gone after the end of its lease is not reported as lost", async () => {
    const late = await open({ guardDataLoss: false });
    await expectNoLossAfterEnd({ late, other: await open({ guardDataLoss: false }), warnings });
  });

  test("a holder that slept beyond the end of its lease does not restore its claim", async () => {
    const clock = new FakeClock();
    const sleeper = await open({ clock });
    await markLongInUse(fixture.database);
    await expectNotRestoredAfterSleep({
      sleeper,
      clock,
      other: await open(),
      lose: async () => {
        await query("truncate holdfast_4_claims");
        await query("update holdfast_4_identity set created = '', sequence = 0");
      },
      inspect: () => findMySqlViolations(query, { isPaused: true }),
    });
  });

  test("a database that is dropped and created again by the next open()", async () => {
    const scenario = await createScenario(async () => {
      await query(`drop database ${fixture.database.name}`);
      await server().query(`create database ${fixture.database.name}`);
      await open();
    });
    await expectLockKept(scenario);
  });

  test("a server that restarts, also while a grace period is running, and a holder whose connections end then", async () => {
    const scenario = await createScenario(async () => {
      await server().restart();
      // a second fault before the holder has come back: its first renewal meets the end of its connections
      await scenario.other.renew([exclusive()]).catch(() => undefined);
      const threads = await query(
        `select id from information_schema.processlist where db = '${fixture.database.name}'`,
      );
      for (const { id } of threads) await query(`kill ${id}`).catch(() => undefined);
      await server().restart();
      await query("delete from holdfast_4_claims");
      await until(
        () =>
          scenario.holder.renew([exclusive()]).then(
            () => true,
            () => false,
          ),
        {
          within: 10_000,
          what: "a connection of the holder",
        },
      );
      await until(
        () =>
          scenario.other.renew([exclusive()]).then(
            () => true,
            () => false,
          ),
        {
          within: 10_000,
          what: "another connection",
        },
      );
    });
    await expectLockKept(scenario);
  });

  test("the longest ttl of the clients counts; a leap of UUID_SHORT() is a restart, its everyday growth is not", async () => {
    const short = await open({ guardDataLoss: { maxTtlMs: 5_000 } });
    expect(warnings.filter((text) => /grace period.*no locks are granted for \d{1,4} ms/.test(text))).toHaveLength(1);
    const long = await open({ guardDataLoss: { maxTtlMs: 600_000 } });
    const pause = async (driver: Driver): Promise<number> => {
      const answer = await driver.claim(exclusive({ ttlMs: 1_000, wait: false }));
      return answer.state === "none" ? (answer.paused?.remainingMs ?? 0) : 0;
    };
    expect(await pause(short)).toBeGreaterThan(500_000);
    await endGracePeriod();
    await query("update holdfast_4_identity set sequence = uuid_short() - 2000000");
    const claim = exclusive({ ttlMs: 1_000 });
    expectHeld(await long.claim(claim));
    await long.release(toReleases(claim));
    const [row] = await query("select uuid_short() - sequence as growth from holdfast_4_identity");
    expect(Number(row?.growth)).toBeLessThan(1_000);
    await query("update holdfast_4_identity set sequence = uuid_short() - 20000000");
    expect(await long.claim(exclusive({ wait: false }))).toEqual({ state: "none", paused: PAUSE });
    await endGracePeriod();
    await query("update holdfast_4_identity set sequence = uuid_short() + 1000");
    expect(await pause(long)).toBeGreaterThan(590_000);
    // after a step back of the clock a period lasts no longer than its length
    await query("update holdfast_4_identity set grace_begins = grace_begins + 1e12, grace_ends = grace_ends + 1e12");
    const afterStep = await pause(long);
    expect(afterStep).toBeGreaterThan(590_000);
    expect(afterStep).toBeLessThanOrEqual(605_000);
  });
});
