// Many sessions at once: no deadlock (the fixture reads the server's log), no key held twice, nothing left behind.

import { afterEach, beforeEach, expect, test } from "vitest";
import { toReleases } from "../../support/releases.ts";
import type { OpenDriver, PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { makeClaim } from "../../support/stores/redis-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  let fixture: PostgresFixture;
  let one: OpenDriver;
  let other: OpenDriver;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    [one, other] = await Promise.all([fixture.open({ max: 32 }), fixture.open({ max: 32 })]);
  });
  afterEach(() => fixture.close());

  test.each([
    ["one new key", () => "key", 1],
    ["64 new keys", (index: number) => `key ${index}`, 64],
  ] as const)("64 first claims of %s at once are all answered", async (_, toKey, held) => {
    const claims = Array.from({ length: 64 }, (__, index) => makeClaim(toKey(index)));
    const answers = await Promise.all(
      claims.map((claim, index) => (index % 2 === 0 ? one : other).driver.claim(claim)),
    );
    expect(answers.filter(({ state }) => state === "held")).toHaveLength(held);
    expect(answers.filter(({ state }) => state === "waiting")).toHaveLength(64 - held);
    expect(await fixture.inspect()).toEqual([]);
    expect(await one.driver.release(toReleases(...claims))).toEqual(claims.map(() => true));
    expect(await fixture.database.query("select id from holdfast.holdfast_1_claims")).toEqual([]);
  });

  test("batches of the same keys in opposite orders do not wait for each other in a circle", async () => {
    const claims = Array.from({ length: 200 }, (_, index) => makeClaim(`key ${index}`));
    for (const claim of claims) await one.driver.claim(claim);
    const reversed = claims.toReversed();
    const ended: string[] = [];
    // detaching makes each renewal write
    for (let round = 0; round < 8; round++) {
      const calls = [
        one.driver.detach?.(claims, 1_000 + round),
        other.driver.detach?.(reversed, 1_000 + round),
        other.driver.renew(reversed),
        one.driver.renew(claims),
      ];
      const results = await Promise.allSettled(calls);
      ended.push(...results.map(({ status }) => status));
    }
    expect(new Set(ended)).toEqual(new Set(["fulfilled"]));
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a pool of 2 connections serves 500 waiting claims, each of which gets its turn", async () => {
    const locks = [fixture.locks({ handoffs: 1 }, { max: 2 }), fixture.locks({ handoffs: 1 }, { max: 2 })];
    let inside = 0;
    let turns = 0;
    const callers = Array.from({ length: 500 }, async (_, index) => {
      const lock = await (locks[index % 2] as (typeof locks)[number]).acquire(`key ${index % 5}`, { wait: "60s" });
      inside++;
      expect(inside).toBeLessThanOrEqual(5);
      turns++;
      await Promise.resolve();
      inside--;
      await lock.release();
    });
    await Promise.all(callers);
    expect(turns).toBe(500);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("10,000 waiting claims of one key are read by index, also with plans made while the table was empty", async () => {
    const holder = makeClaim("key");
    // the plans of these sessions are made now
    await one.driver.claim(holder);
    await one.driver.renew([holder]);
    await fixture.database.query(`insert into holdfast.holdfast_1_claims
      select 'w' || n, key, arrival + n, bucket, permits, permit_limit, state, ttl, expires, 0, 1, 0, '', true, '', created, null
      from holdfast.holdfast_1_claims, generate_series(1, 10000) n`);
    const scans = async (): Promise<number> => {
      await fixture.database.query("select pg_stat_force_next_flush()").catch(() => undefined);
      const [row] = await fixture.database.query(
        "select coalesce(sum(seq_scan), 0)::int as n from pg_stat_user_tables where relname ~ 'claims|tombstones'",
      );
      return Number(row?.n);
    };
    const before = await scans();
    const readBlocks = async (): Promise<number> => {
      const [row] = await fixture.database.query(
        "select sum(heap_blks_hit + idx_blks_hit)::int as n from pg_statio_user_tables where relname ~ 'claims'",
      );
      return Number(row?.n);
    };
    const blocksBefore = await readBlocks();
    const late = makeClaim("key");
    for (let round = 0; round < 20; round++) {
      expect((await one.driver.claim(late)).state).toBe("waiting");
      expect((await one.driver.renew([holder, late])).map((answer) => answer?.state)).toEqual(["held", "waiting"]);
      expect(await one.driver.release(toReleases(late))).toEqual([true]);
    }
    expect(await scans()).toBe(before);
    expect((await readBlocks()) - blocksBefore).toBeLessThan(20 * 4 * 50);
  });
});
