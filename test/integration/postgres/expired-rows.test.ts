// Rows of processes that died: nothing calls for them again, and their keys may never be used again.

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  async function countRows(): Promise<number> {
    const [row] = await fixture.database.query("select count(*)::int as count from holdfast.holdfast_1_claims");
    return Number(row?.count);
  }

  test.each(["nothing", "an empty table", "its rows"])(
    "tombstones of a burst are removed in batches by later calls that write none; the server knows %s",
    async (knows) => {
      const { driver } = await fixture.open();
      const held = makeClaim("held", { ttlMs: 60_000 });
      await driver.claim(held);
      // the plan of the calls follows what the server knows of the table
      if (knows === "an empty table") await fixture.database.query("vacuum analyze holdfast.holdfast_1_tombstones");
      await fixture.database.query(`insert into holdfast.holdfast_1_tombstones
      select 'ended-' || n, 'released', 1 from pg_catalog.generate_series(1, 20000) n`);
      if (knows === "its rows") await fixture.database.query("analyze holdfast.holdfast_1_tombstones");
      const countTombstones = async (): Promise<number> => {
        const [row] = await fixture.database.query("select count(*)::int as count from holdfast.holdfast_1_tombstones");
        return Number(row?.count);
      };
      await fixture.database.query("update holdfast.holdfast_1_claims set expires = expires - 20000000");
      await driver.renew([held]);
      expect(await countTombstones()).toBe(19_000);
      let pairs = 0;
      do {
        for (let index = 0; index < 16; index++, pairs++) {
          const claim = makeClaim("free");
          await driver.claim(claim);
          await driver.release(toReleases(claim));
        }
      } while ((await countTombstones()) > 0);
      // 19 batches, one in 16 pairs
      expect(pairs).toBeLessThan(1_000);
      expect(await fixture.inspect()).toEqual([]);
    },
  );

  test("claims on other keys remove the rows of keys that are never used again", async () => {
    const { driver } = await fixture.open();
    const abandoned = Array.from({ length: 20 }, (_, index) => makeClaim(`abandoned:${index}`, { ttlMs: 100 }));
    await Promise.all(abandoned.map((claim) => driver.claim(claim)));
    let round = 0;
    await until(
      async () => {
        const claim = makeClaim(`used:${round++ % 7}`);
        await driver.claim(claim);
        await driver.release(toReleases(claim));
        return (await countRows()) === 0;
      },
      { within: 20_000, what: "an empty table" },
    );
    expect(await fixture.inspect()).toEqual([]);
  });

  test("waiters that died behind one that waits for long are removed by claims on other keys, and keep none out", async () => {
    const { driver } = await fixture.open();
    const makeClaims = (count: number, ttlMs: number): Claim[] =>
      Array.from({ length: count }, () => makeClaim("key", { ttlMs }));
    const [holder, waiter, last] = makeClaims(3, 60_000) as [Claim, Claim, Claim];
    const dead = makeClaims(5, 100);
    for (const claim of [holder, waiter, ...dead]) await driver.claim(claim);
    await driver.claim(last);
    await until(
      async () => {
        const claim = makeClaim("elsewhere");
        await driver.claim(claim);
        await driver.release(toReleases(claim));
        return (await countRows()) === 3;
      },
      { within: 20_000, what: "the rows of live claims only" },
    );
    expect(await driver.renew(dead)).toMatchObject(dead.map(() => ({ state: "none", reason: "expired" })));
    await driver.release(toReleases(holder));
    expect(await driver.renew([waiter, last])).toMatchObject([{ state: "held" }, { state: "waiting" }]);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a claim that waits behind such a row is granted by a claim on another key", async () => {
    const [{ driver }, other] = [await fixture.open(), await fixture.open()];
    const [dead, waiter] = [makeClaim("key", { ttlMs: 300 }), makeClaim("key", { ttlMs: 60_000 })];
    await driver.claim(dead);
    expect(await driver.claim(waiter)).toMatchObject({ state: "waiting" });
    await until(
      async () => {
        const claim = makeClaim("elsewhere");
        await other.driver.claim(claim);
        await other.driver.release(toReleases(claim));
        const rows = await fixture.database.query(
          "select token::text from holdfast.holdfast_1_claims where key = 'key'",
        );
        return rows.some(({ token }) => token !== "0") && rows.length === 1;
      },
      { within: 20_000, what: "the grant" },
    );
    expect((await driver.renew([waiter]))[0]).toMatchObject({ state: "held" });
    expect(await fixture.inspect()).toEqual([]);
  });
});
