// Claims and releases leave undo records and deleted rows. The server purges them: sizes stay bounded.

import { statSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { cycleClaims } from "../../support/claim-cycles.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
const CYCLES = IS_LONG_RUN ? 1_000_000 : 1_000;
const REPORTS = IS_LONG_RUN ? 20 : 1;
const KIB = 1_024;
const TABLES = ["buckets", "claims", "tombstones"].map((name) => `holdfast_4_${name}`);
const MAX_CLAIMS_KIB = IS_LONG_RUN ? 16_384 : 1_024;
const MAX_SYSTEM_KIB = 262_144;
/** Transactions whose old rows are not purged yet. */
const MAX_HISTORY = 2_000;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
  });
  afterEach(async () => {
    await fixture.close();
    await fixture.database.drop();
  });

  const sizeKib = (...path: string[]): number => statSync(join(server().folder, "data", ...path)).size / KIB;

  test("waiters that died behind one that waits for long are removed by later claims", async () => {
    const driver = await fixture.open();
    // one claim in 16 looks at those that follow it in the order of ids: with random ones this could take long
    const makeClaims = (begins: string, ttlMs: number): Claim[] =>
      [...begins].map((begin) => makeClaim("key", { id: begin + randomId().slice(1), ttlMs }));
    const [holder, waiter, last] = makeClaims("abc", 60_000) as [Claim, Claim, Claim];
    for (const claim of [holder, waiter, ...makeClaims("hmrw4", 100), last]) await driver.claim(claim);
    await until(
      async () => {
        const id = randomId();
        const claim = makeClaim("key", { id: `${id.slice(0, 8)}2${id.slice(9)}` });
        await driver.claim(claim);
        await driver.release(toReleases(claim));
        const [row] = await fixture.database.query("select count(*) as count from holdfast_4_claims");
        return Number(row?.count) === 3;
      },
      { within: 20_000, what: "the rows of live claims only" },
    );
    await driver.release(toReleases(holder));
    expect(await driver.renew([waiter, last])).toMatchObject([{ state: "held" }, { state: "waiting" }]);
    expect(await fixture.violations()).toEqual([]);
  });

  test(`after ${CYCLES} claims and releases the files are small, and old rows are purged`, {
    timeout: IS_LONG_RUN ? 7_200_000 : 60_000,
  }, async () => {
    const driver = await fixture.open({ pool: { connectionLimit: 16 } });
    for (let report = 1; report <= REPORTS; report++) {
      await cycleClaims(driver, CYCLES / REPORTS);
      const sizes = TABLES.map((name) => `${name} ${sizeKib(fixture.database.name, `${name}.ibd`)} KiB`);
      const history = await fixture.status("Innodb_history_list_length");
      console.log(
        `figure: MariaDB after ${(CYCLES / REPORTS) * report} cycles: ${sizes.join(", ")}, undo ${sizeKib("ibdata1")} KiB, history ${history}`,
      );
      expect(sizeKib(fixture.database.name, "holdfast_4_claims.ibd")).toBeLessThan(MAX_CLAIMS_KIB);
      expect(sizeKib("ibdata1")).toBeLessThan(MAX_SYSTEM_KIB);
    }
    await until(async () => (await fixture.status("Innodb_history_list_length")) < MAX_HISTORY, {
      within: 10_000,
      what: "the purge of old rows",
    });
    expect(await fixture.violations()).toEqual([]);
  });
});
