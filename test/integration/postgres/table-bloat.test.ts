// Claims and releases leave dead rows. Reads free those of a full page, and autovacuum the rest: sizes stay bounded.

import { afterEach, beforeEach, expect, test } from "vitest";
import { cycleClaims } from "../../support/claim-cycles.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
const CYCLES = IS_LONG_RUN ? 1_000_000 : 2_500;
const REPORTS = IS_LONG_RUN ? 20 : 1;
const KIB = 1_024;
/** If no dead row were freed, a cycle would cost more than 300 bytes. */
const MAX_BYTES = { claims: IS_LONG_RUN ? 16_384 * KIB : 400 * KIB, indexes: IS_LONG_RUN ? 4_096 * KIB : 256 * KIB };

const READ_SIZES = `select relname as name, pg_table_size(relid)::int as bytes, pg_indexes_size(relid)::int as indexes,
    n_dead_tup::int as dead, autovacuum_count::int as vacuums
  from pg_stat_user_tables where schemaname = 'holdfast' and relname <> 'holdfast_layout' order by relname`;

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  const readSizes = async () =>
    (await fixture.database.query(READ_SIZES)) as readonly {
      readonly name: string;
      readonly bytes: number;
      readonly indexes: number;
      readonly dead: number;
      readonly vacuums: number;
    }[];

  test(`after ${CYCLES} claims and releases the tables are small`, {
    timeout: IS_LONG_RUN ? 7_200_000 : 60_000,
  }, async () => {
    const { driver } = await fixture.open({ max: 16 });
    for (let report = 1; report <= REPORTS; report++) {
      await cycleClaims(driver, CYCLES / REPORTS);
      const sizes = await readSizes();
      for (const { name, bytes, indexes, dead, vacuums } of sizes) {
        console.log(
          `figure: ${name} after ${(CYCLES / REPORTS) * report} cycles: ${bytes / KIB} KiB, indexes ${indexes / KIB} KiB, ${dead} dead rows, ${vacuums} vacuums`,
        );
      }
      const claims = sizes.find(({ name }) => name === "holdfast_1_claims");
      expect(claims?.bytes).toBeLessThan(MAX_BYTES.claims);
      expect(claims?.indexes).toBeLessThan(MAX_BYTES.indexes);
    }
    expect(await fixture.inspect()).toEqual([]);
  });
});
