// Claims and releases leave dead rows. Reads free those of a full page, and autovacuum the rest: sizes stay bounded.

import { afterEach, beforeEach, expect, test } from "vitest";
import { cycleClaims } from "../../support/claim-cycles.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
const CYCLES = IS_LONG_RUN ? 50_000 : 800;
const ROUNDS = IS_LONG_RUN ? 20 : 8;
const KIB = 1_024;
/** If no deleted row were freed, the claims of a round would need four times as much. */
const MAX_GROWTH = 64 * KIB;
const [MAX_CLAIMS, MAX_INDEXES] = [16_384 * KIB, 1_024 * KIB];

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

  test(`rounds of ${CYCLES} claims and releases use the space of earlier ones again`, {
    timeout: IS_LONG_RUN ? 7_200_000 : 60_000,
  }, async () => {
    const { driver } = await fixture.open({ max: 16 });
    let [bytes, smallestGrowth] = [0, Number.POSITIVE_INFINITY];
    // a transaction that began before a deletion, as autovacuum's analysis, keeps the rows: not every round is the same
    for (let round = 1; round <= ROUNDS && (IS_LONG_RUN || smallestGrowth > MAX_GROWTH); round++) {
      await cycleClaims(driver, CYCLES);
      const sizes = await readSizes();
      for (const table of sizes) {
        console.log(
          `figure: ${table.name} after ${CYCLES * round} cycles: ${table.bytes / KIB} KiB, indexes ${table.indexes / KIB} KiB, ${table.dead} dead rows, ${table.vacuums} vacuums`,
        );
      }
      const claims = sizes.find(({ name }) => name === "holdfast_1_claims");
      if (round > 1) smallestGrowth = Math.min(smallestGrowth, (claims?.bytes ?? 0) - bytes);
      bytes = claims?.bytes ?? 0;
      expect(bytes).toBeLessThan(MAX_CLAIMS);
      expect(claims?.indexes).toBeLessThan(MAX_INDEXES);
    }
    expect(smallestGrowth).toBeLessThanOrEqual(MAX_GROWTH);
    expect(await fixture.inspect()).toEqual([]);
  });
});
