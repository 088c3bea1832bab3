// Many sessions at once: no deadlock (the fixture reads the server's log), no key held twice, nothing left behind.

import { Client, Pool } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { countRenewalsBeforeClaim } from "../../support/stores/busy-renewals.ts";
import { ConnectionUse } from "../../support/stores/connection-use.ts";
import type { OpenDriver, PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const DRIVER_COUNT = 16;

withPostgres((server) => {
  let fixture: PostgresFixture;
  /** Many: a driver sends its calls for one bucket one after another, so only those of different drivers meet in the server. */
  let drivers: readonly OpenDriver[];
  let one: OpenDriver;
  let other: OpenDriver;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    drivers = await Promise.all(Array.from({ length: DRIVER_COUNT }, () => fixture.open()));
    [one, other] = drivers as [OpenDriver, OpenDriver];
  });
  afterEach(() => fixture.close());

  test.each([
    ["one new key", () => "key", 1],
    ["64 new keys", (index: number) => `key ${index}`, 64],
  ] as const)("64 first claims of %s at once are all answered", async (_, toKey, held) => {
    const claims = Array.from({ length: 64 }, (__, index) => makeClaim(toKey(index)));
    const answers = await Promise.all(
      claims.map((claim, index) => (drivers[index % DRIVER_COUNT] as OpenDriver).driver.claim(claim)),
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
    const detach = async (of: OpenDriver, all: typeof claims, remainingMs: number) =>
      of.driver.detach?.(all, remainingMs);
    const ended: string[] = [];
    // detaching makes each renewal write
    for (let round = 0; round < 8; round++) {
      const calls = [
        detach(one, claims, 1_000 + round),
        detach(other, reversed, 1_000 + round),
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
    const locks = [fixture.locks({ order: "strict" }, { max: 2 }), fixture.locks({ order: "strict" }, { max: 2 })];
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

  test("64 callers who want one key take one connection of their pool at a time, as long as no call takes longer than a turn", async () => {
    const pool = new Pool({ connectionString: fixture.database.url, max: 20 });
    const use = new ConnectionUse();
    const connect = pool.connect.bind(pool) as () => Promise<{ release(error?: boolean): void }>;
    const watchedConnect = async () => {
      const returnOne = use.take();
      const client = await connect();
      const { release } = client;
      client.release = (error) => {
        returnOne();
        release(error);
      };
      return client;
    };
    const locks = createLocks(
      postgres(Object.assign(pool, { connect: watchedConnect }), { silenceWarnings: ["durability"] }),
      { order: "strict" },
    );
    const other = fixture.locks({ order: "strict" });
    await Promise.all(
      Array.from({ length: 128 }, async (_, index) => {
        const lock = await (index % 2 === 0 ? locks : other).acquire("key", { wait: "60s" });
        await lock.release();
      }),
    );
    expect(use.takenCount).toBeGreaterThan(100);
    // on a busy machine some have their turn while they wait for a new connection; without turns nearly all overlap
    expect(use.overlapCount / use.takenCount).toBeLessThan(0.2);
    expect(await fixture.inspect()).toEqual([]);
    await locks.close();
    await pool.end();
  });

  test("rechecks without a pause do not keep a claim for the same bucket from being sent", async () => {
    expect(await countRenewalsBeforeClaim(one.driver, 500)).toBeLessThan(500);
  });

  test("a burst of 500 claims through a pool of 2, whose statements are slow, delays no renewal until a lease ends, and no release", async () => {
    const [locks, other] = [fixture.locks({}, { max: 2 }), fixture.locks()];
    const lost: string[] = [];
    locks.on("lost", ({ keys }) => lost.push(...keys));
    const held = [await locks.acquire("renewed", { ttl: "2s" }), await locks.acquire("released", { ttl: "2s" })];
    await fixture.database.query(`
      create function holdfast.wait() returns trigger language plpgsql as
        'begin perform pg_catalog.pg_sleep(0.05); return new; end';
      create trigger slow before insert on holdfast.holdfast_1_claims for each row
        when (new.label = 'slow') execute function holdfast.wait();
    `);
    let granted = 0;
    const abort = new AbortController();
    const burst = Array.from({ length: 500 }, async (_, index) => {
      await locks.acquire(`key ${index}`, { label: "slow", signal: abort.signal });
      granted++;
    });
    const settled = Promise.allSettled(burst);
    // this takes longer than a lease
    await until(() => granted >= 120, { within: 20_000, what: "a part of the burst" });
    const next = other.acquire("released", { wait: "20s" });
    const grantedBefore = granted;
    await held[1]?.release();
    await next;
    expect(granted - grantedBefore).toBeLessThan(60);
    expect(lost).toEqual([]);
    held[0]?.throwIfLost();
    abort.abort();
    await settled;
    expect(await fixture.inspect()).toEqual([]);
  });

  test.each([
    ["with plans made while the table was empty", []],
    ["in a session that turns index scans off", ["set enable_indexscan = off", "set enable_bitmapscan = off"]],
  ])("calls for a key with 10,000 waiting claims read a few rows by index, also %s", async (_, settings) => {
    // one session: its plans, and the statistics of what it has read
    const session = new Client(fixture.database.url);
    await session.connect();
    for (const setting of settings) await session.query(setting);
    const call = async (text: string): Promise<string> => {
      const { rows } = await session.query(`select holdfast.holdfast_1_${text} as reply`);
      return String(rows[0]?.reply).slice(0, 1);
    };
    const claim = (id: string, wait: boolean) =>
      call(`claim('${id}', 'key', 1, 1073741824, 1073741824, 30000, 1, 0, ${wait}, '', 'inbox', 0)`);
    expect(await claim("holder", true)).toBe("h");
    expect(await call("renew('holder', 'inbox', 0)")).toBe("h");
    expect(await call("release('unknown', '1000', '0', '1', 'inbox', 0)")).toBe("0");
    await session.query(`insert into holdfast.holdfast_1_claims
      select 'w' || n, key, arrival + n, bucket, permits, permit_limit, state, ttl, expires, 0, 1, 0, '', true, '', created, null
      from holdfast.holdfast_1_claims, generate_series(1, 10000) n`);
    const countReads = async (): Promise<{ readonly scans: number; readonly rows: number }> => {
      const { rows } = await session.query(
        "select sum(seq_scan)::int as scans, sum(idx_tup_fetch)::int as rows from pg_stat_xact_user_tables where relname ~ 'claims|tombstones|buckets'",
      );
      return rows[0] as never;
    };
    const before = await countReads();
    expect(await claim("late", true)).toBe("w");
    expect(await claim("try", false)).toBe("n");
    expect(await call("renew('holder,late', 'inbox', 0)")).toBe("h");
    expect(await call("renew('holder,late', 'other', 0)")).toBe("h");
    expect(await call("release('late', '30000', '0', '1', 'inbox', 0)")).toBe("1");
    const after = await countReads();
    expect(after.scans).toBe(before.scans);
    expect(after.rows - before.rows).toBeLessThan(100);
    await session.end();
  });
});
