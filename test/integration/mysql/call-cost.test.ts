// What a call reads, however many hold its key.

import { afterEach, beforeEach, expect, test } from "vitest";
import { formatRows } from "../../../src/drivers/sql/mysql/row-format.ts";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { randomId } from "../../../src/util/ids.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { expectReturnedPermits } from "../../support/stores/returned-permits.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const BUCKET = toBucket("key");
const PAIRS = 32;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let driver: Driver;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    driver = await fixture.open();
  });
  afterEach(async () => {
    await fixture.close();
    await fixture.database.drop();
  });

  test("the rows that a grant, a release, a refusal and a recheck read do not grow with the holders of the key", async () => {
    const session = await fixture
      .pool({ pool: { connectionLimit: 1 } })
      .promise()
      .getConnection();
    const limit = 2_000;
    const claim = (id: string, permitLimit: number, wait = 1) =>
      session.query("call holdfast_4_claim('inbox', 4, ?, 'key', ?, 1, ?, 600000, 1, 0, ?, false, '', 0)", [
        ...[id, BUCKET, permitLimit, wait],
      ]);
    const rows = (id: string) => formatRows([{ id, key: "key", bucket: BUCKET, ttlMs: 600_000 }]);
    const release = (id: string) => session.query("call holdfast_4_release('inbox', 4, ?, 0)", [rows(id)]);
    const renew = (id: string) => session.query("call holdfast_4_renew('inbox', 4, ?, 0)", [rows(id)]);
    const readCount = async (): Promise<number> => {
      const [rows] = await session.query("show session status like 'Handler_read%'");
      return (rows as { readonly Value: string }[]).reduce((sum, { Value: value }) => sum + Number(value), 0);
    };
    const measure = async (run: () => Promise<unknown>): Promise<number> => {
      const before = await readCount();
      for (let index = 0; index < PAIRS; index++) await run();
      return (await readCount()) - before;
    };
    const measureAll = async (): Promise<Record<string, number>> => {
      const pair = await measure(async () => {
        const id = randomId();
        await claim(id, limit);
        await release(id);
      });
      const refusal = await measure(() => claim(randomId(), 1, 0));
      const waiting = randomId();
      await claim(waiting, 1);
      const recheck = await measure(() => renew(waiting));
      await release(waiting);
      return { pair, refusal, recheck };
    };
    const hold = async (count: number): Promise<void> => {
      for (let index = 0; index < count; index++) await claim(randomId(), limit);
    };
    await hold(10);
    const few = await measureAll();
    await hold(490);
    const many = await measureAll();
    for (const [call, rows] of Object.entries(many)) {
      expect(rows, `${call}: ${JSON.stringify({ few, many })}`).toBeLessThan(2 * (few[call] as number));
    }
    session.release();
    expect(await fixture.violations()).toEqual([]);
  });

  test("permits come back with a release, a revocation and the end of a lease, whoever else holds the key", async () => {
    await expectReturnedPermits(driver);
    expect(await fixture.violations()).toEqual([]);
  });
});
