// What a pair of claim and release reads while a transaction stays open that keeps the server from purging old versions of rows.

import type { Connection } from "mysql2/promise";
import { createConnection } from "mysql2/promise";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const [FEW, PAIRS] = [100, 2_000];
/** What visits the deleted rows of the key reads more than 490, and of one that is emptied more than 8,000. With other statistics the server has read 400 for a lock that is handed on. */
const MAX_PAGES = { free: 150, "handed on": 450, emptied: 600 };
/** So many pairs are counted one by one. */
const SAMPLES = 25;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let reader: Connection;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    reader = await createConnection({ uri: fixture.database.url });
  });
  afterEach(async () => {
    await reader.end();
    await fixture.close();
    await fixture.database.drop();
  });

  /** The pages that one of the next pairs reads: the least, since the server reads pages for itself, too. */
  const countPages = async (pair: () => Promise<void>): Promise<number> => {
    const observer = fixture.pool({ pool: { connectionLimit: 1 } }).promise();
    const pages: number[] = [];
    const read = async (): Promise<number> => {
      const [rows] = await observer.query("show global status like 'Innodb_buffer_pool_read_requests'");
      return Number((rows as unknown as readonly { readonly Value: string }[])[0]?.Value);
    };
    for (let index = 0; index < SAMPLES; index++) {
      const before = await read();
      await pair();
      pages.push((await read()) - before);
    }
    return Math.min(...pages);
  };

  test.each(["free", "handed on", "emptied"] as const)(
    `after ${PAIRS} pairs of one key that is %s a pair reads few pages`,
    {
      timeout: 120_000,
    },
    async (kind) => {
      const driver = await fixture.open();
      let holder = makeClaim("key");
      await driver.claim(holder);
      if (kind !== "handed on") await driver.release(toReleases(holder));
      /** The lock goes from one claim to the next, which waits for it; or there is one claim at a time; or no claim is left after a wait. */
      const pair = async (): Promise<void> => {
        const claim = makeClaim("key");
        await driver.claim(claim);
        if (kind === "emptied") {
          const waiter = makeClaim("key");
          await driver.claim(waiter);
          await driver.release(toReleases(claim));
          await driver.release(toReleases(waiter));
          return;
        }
        await driver.release(toReleases(kind === "free" ? claim : holder));
        holder = claim;
      };
      await reader.query("start transaction with consistent snapshot");
      for (let count = 0; count < FEW; count++) await pair();
      const few = await countPages(pair);
      for (let count = FEW; count < PAIRS; count++) await pair();
      const many = await countPages(pair);
      console.log(
        `figure: MariaDB beside an open snapshot, ${kind}: ${few} pages a pair after ${FEW}, ${many} after ${PAIRS}`,
      );
      expect(many).toBeLessThanOrEqual(MAX_PAGES[kind]);
      expect(await fixture.violations()).toEqual([]);
    },
  );
});
