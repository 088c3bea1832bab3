// What waiting costs the server, and what is left behind.

import { afterEach, beforeEach, expect, test } from "vitest";
import { parseWaitersAhead } from "../../../src/drivers/reply-codec.ts";
import { formatRows } from "../../../src/drivers/sql/mysql/row-format.ts";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture, markLongInUse } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const WAITER_COUNT = 200;
const MAX_STATEMENTS_PER_SECOND = 4;
const IDLE_COUNT = 50;
/** The longest interval at which an idle lock is asked about. */
const RECALL_MS = 1_000;
/** The waiter's own recheck, and what a busy machine adds. */
const SLACK_MS = 1_000;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
  });
  afterEach(async () => {
    await fixture.close();
    await fixture.database.drop();
  });

  const countCalls = (): Promise<number> => fixture.status("Questions");

  test(`${WAITER_COUNT} waiters of a process cost at most ${MAX_STATEMENTS_PER_SECOND} statements a second after their first one`, async () => {
    const [holder, locks]: Locks[] = [
      createLocks(fixture.driver(), { ttl: 120_000 }),
      createLocks(fixture.driver(), { ttl: 120_000 }),
    ];
    const keys = Array.from({ length: WAITER_COUNT }, (_, index) => `key ${index % 50}`);
    const held = await Promise.all([...new Set(keys)].map((key) => (holder as Locks).acquire(key)));
    const waiting = keys.map((key) => (locks as Locks).rw(key).read.acquire());
    await until(async () => (await countRows()) === held.length + WAITER_COUNT, {
      within: 20_000,
      what: "all waiters",
    });
    // their first second, in which they are rechecked more often
    let [since, calls] = [performance.now(), await countCalls()];
    await until(() => performance.now() - since > 1_500, { within: 5_000, what: "the first second's end" });
    [since, calls] = [performance.now(), await countCalls()];
    await until(() => performance.now() - since > 3_000, { within: 10_000, what: "three seconds" });
    const rate = ((await countCalls()) - calls) / ((performance.now() - since) / 1_000);
    expect(rate).toBeGreaterThan(1);
    // the test's own question counts
    expect(rate).toBeLessThanOrEqual(MAX_STATEMENTS_PER_SECOND + 0.7);
    await Promise.all(held.map((lock: Lock) => lock.release()));
    for (const lock of await Promise.all(waiting)) await lock.release();
    await Promise.all([holder?.close(), locks?.close()]);
    expect(await fixture.violations(true)).toEqual([]);

    async function countRows(): Promise<number> {
      const [row] = await fixture.database.query("select count(*) as count from holdfast_4_claims");
      return Number(row?.count);
    }
  });

  test(`${IDLE_COUNT} cached locks that are idle cost at most ${MAX_STATEMENTS_PER_SECOND} statements a second, and each is given back within ${RECALL_MS} ms`, async () => {
    const holder = createLocks(fixture.driver(), { ttl: 120_000, cache: 120_000 });
    const other = createLocks(fixture.driver(), { ttl: 120_000 });
    const keys = Array.from({ length: IDLE_COUNT }, (_, index) => `key ${index}`);
    for (const key of keys) await (await holder.acquire(key)).release();
    const [since, calls] = [performance.now(), await countCalls()];
    await until(() => performance.now() - since > 3_000, { within: 10_000, what: "three seconds" });
    const rate = ((await countCalls()) - calls) / ((performance.now() - since) / 1_000);
    expect(rate).toBeGreaterThan(0.5);
    // the test's own question counts
    expect(rate).toBeLessThanOrEqual(MAX_STATEMENTS_PER_SECOND + 0.7);
    for (const key of keys.slice(0, 4)) {
      const startedAt = performance.now();
      await (await other.acquire(key)).release();
      expect(performance.now() - startedAt).toBeLessThan(RECALL_MS + SLACK_MS);
    }
    await Promise.all([holder.close(), other.close()]);
    expect(await fixture.violations(true)).toEqual([]);
  });

  test("each answer to a waiting claim says how many waiters are ahead of it, so that the next one is rechecked most often", async () => {
    const driver = await fixture.open();
    const [key, bucket] = ["queue", toBucket("queue")];
    const claims = [..."abcde"].map((first) => makeClaim(key, { id: makeId(first, "z") }));
    const [holder, ...waiters] = claims as [Claim, ...Claim[]];
    await driver.claim(holder);
    for (const [index, { id }] of waiters.entries()) {
      const values = `'inbox', 5, '${id}', '${key}', ${bucket}, 1, 1, 30000, 1, 0, true, false, '', 0`;
      expect(parseWaitersAhead(await callProcedure("claim", values))).toBe(index);
      expect(parseWaitersAhead(await callProcedure("claim", values)), "the same call again").toBe(index);
    }
    const readPlaces = async (): Promise<(number | null)[]> => {
      const rows = formatRows(waiters.map(({ id }) => ({ id, key, bucket, ttlMs: 30_000 })));
      const lines = (await callProcedure("renew", `'inbox', 5, '${rows}', 0`)).trim().split("\n");
      return lines.map((line) => parseWaitersAhead(line.slice(27)));
    };
    expect(await readPlaces()).toEqual([0, 1, 2, 3]);
    await driver.release(toReleases(holder));
    // the release has granted it: its process may be gone before it asks
    const granted = await fixture.database.query("select id from holdfast_4_claims where token > 0");
    expect(granted.map(({ id }) => String(id))).toEqual([waiters[0]?.id]);
    expect(await readPlaces()).toEqual([null, 0, 1, 2]);

    async function callProcedure(name: string, values: string): Promise<string> {
      const [rows] = await fixture.database.query(`call holdfast_4_${name}(${values})`);
      const [{ reply, replies = reply }] = rows as unknown as [{ reply?: string; replies?: string }];
      return String(replies);
    }
  });

  test("one claim in 16, by its id, removes the rows of processes that died, though their keys are never used again", async () => {
    const driver = await fixture.open();
    const count = async (where: string = "true"): Promise<number> => {
      const [row] = await fixture.database.query(`select count(*) as count from holdfast_4_claims where ${where}`);
      return Number(row?.count);
    };
    for (const first of "abcdefghijklmnopqrst") {
      await driver.claim(makeClaim(`dead ${first}`, { id: makeId(first, "a"), ttlMs: 50 }));
    }
    // one bucket for all, so that the test does not need thousands of claims
    await fixture.database.query("update holdfast_4_claims set bucket = 7");
    // a row whose lease has not ended yet would end the removal
    const haveEnded = "expires < timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
    await until(async () => (await count(haveEnded)) === 20, { within: 5_000, what: "the end of all leases" });
    const key = findKeyOfBucket(7);
    const claimAndRelease = async (id: string): Promise<number> => {
      const claim = makeClaim(key, { id });
      await driver.claim(claim);
      await driver.release(toReleases(claim));
      return count();
    };
    expect(await claimAndRelease(makeId("k", "4"))).toBe(20);
    // rows are in front of it and behind it
    expect(await claimAndRelease(makeId("k", "3"))).toBe(0);
  });

  test("tombstones that have expired are removed by later ones", async () => {
    const driver = await fixture.open();
    const release = async (): Promise<void> => {
      await driver.release([{ claim: makeClaim("key"), hasUnansweredClaim: true }]);
    };
    const count = async (): Promise<number> => {
      const [row] = await fixture.database.query("select count(*) as count from holdfast_4_tombstones");
      return Number(row?.count);
    };
    for (let index = 0; index < 10; index++) await release();
    expect(await count()).toBe(10);
    await fixture.database.query("update holdfast_4_tombstones set expires = 1");
    for (let index = 0; index < 3; index++) await release();
    expect(await count()).toBe(3);
  });

  test.each([false, true])(
    "those of a burst are removed in batches by later releases that write none (guardDataLoss: %s)",
    async (guardDataLoss) => {
      const driver = await fixture.open({ driver: { guardDataLoss } });
      if (guardDataLoss) await markLongInUse(fixture.database);
      const bucket = toBucket("key");
      const rows = Array.from({ length: 100 }, (_, index) => `('ended ${index}', ${bucket}, 'released', 1)`);
      await fixture.database.query(
        `insert into holdfast_4_tombstones values ${rows.join(",")}, ('elsewhere', ${bucket + 1}, 'released', 1)`,
      );
      await fixture.database.query("update holdfast_4_buckets set form = 'table', used = null");
      const counts: number[] = [];
      for (let pair = 0; pair < 4; pair++) {
        const claim = makeClaim("key");
        expect(await driver.claim(claim)).toMatchObject({ state: "held" });
        await driver.release(toReleases(claim));
        const [row] = await fixture.database.query("select count(*) as count from holdfast_4_tombstones");
        counts.push(Number(row?.count));
      }
      expect(counts).toEqual([69, 37, 5, 1]);
      const [row] = await fixture.database.query(`select form from holdfast_4_buckets where bucket = ${bucket}`);
      expect(row?.form === "free", "the bucket is free, so claims take the short way").toBe(!guardDataLoss);
    },
  );
});

/** An id that begins with this character. The ninth one decides whether the claim removes other rows. */
function makeId(first: string, ninth: string): string {
  return `${first.padEnd(8, "m")}${ninth.padEnd(18, "m")}`;
}

function findKeyOfBucket(bucket: number): string {
  for (let index = 0; ; index++) if (toBucket(`key ${index}`) === bucket) return `key ${index}`;
}
