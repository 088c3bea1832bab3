// A claim that is alone in its bucket is kept in the bucket's row. Whatever comes after it finds it there, or moves it.

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

/** They are of one bucket. */
const KEYS = ["key", "key 266"] as const;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let driver: Driver;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    driver = await fixture.open();
    // a bucket that was never used is not known to be free
    await lockOnce("key");
  });
  afterEach(async () => {
    expect(await fixture.violations()).toEqual([]);
    await fixture.close();
    await fixture.database.drop();
  });

  async function lockOnce(key: string): Promise<void> {
    const claim = makeClaim(key);
    expect(await driver.claim(claim)).toMatchObject({ state: "held" });
    expect(await driver.release(toReleases(claim))).toEqual([true]);
  }

  const query = (text: string) => fixture.database.query(text);

  /** The ids in the table of claims, and those in rows of buckets. */
  async function readPlaces(): Promise<{ readonly queued: readonly string[]; readonly alone: readonly string[] }> {
    const toIds = (rows: readonly Readonly<Record<string, unknown>>[]): string[] => rows.map(({ id }) => String(id));
    return {
      queued: toIds(await query("select id from holdfast_4_claims order by arrival")),
      alone: toIds(await query("select id from holdfast_4_buckets where form = 'lone'")),
    };
  }

  /** A held claim that is alone in its bucket. */
  async function claimAlone(
    claim: Claim = makeClaim("key"),
  ): Promise<{ readonly claim: Claim; readonly token: bigint }> {
    const answer = await driver.claim(claim);
    expect(await readPlaces()).toEqual({ queued: [], alone: [claim.id] });
    return { claim, token: (answer as { token: bigint }).token };
  }

  test("claims that come one after another write no row of their own, and their tokens rise", async () => {
    let last = 0n;
    for (let round = 0; round < 20; round++) {
      const { claim, token } = await claimAlone(makeClaim("key", { tokenCount: 100_000 }));
      expect(token).toBeGreaterThan(last);
      last = token + 99_999n;
      expect(await driver.release(toReleases(claim))).toEqual([true]);
      expect(await driver.release(toReleases(claim)), "again").toEqual([false]);
    }
  });

  test("another claim of the key waits, and the release grants it; then the bucket is free again", async () => {
    const { claim, token } = await claimAlone();
    const next = makeClaim("key");
    expect(await driver.claim(next)).toMatchObject({ state: "waiting" });
    expect(await readPlaces()).toEqual({ queued: [claim.id, next.id], alone: [] });
    expect(await driver.release(toReleases(claim))).toEqual([true]);
    const [answer] = await driver.renew([next]);
    expect(answer).toMatchObject({ state: "held" });
    expect((answer as { token: bigint }).token).toBeGreaterThan(token);
    expect(await driver.release(toReleases(next))).toEqual([true]);
    await claimAlone();
  });

  test("a claim of another key of the bucket is held beside it", async () => {
    const { claim } = await claimAlone();
    const other = makeClaim(KEYS[1]);
    expect(await driver.claim(other)).toMatchObject({ state: "held" });
    expect(await readPlaces()).toMatchObject({ alone: [] });
    expect(await driver.release(toReleases(claim))).toEqual([true]);
    // the other one is still there: the bucket is not free
    expect(await driver.claim(makeClaim(KEYS[1], { wait: false }))).toMatchObject({ state: "none" });
    const next = makeClaim("key");
    expect(await driver.claim(next)).toMatchObject({ state: "held" });
    expect(await driver.release(toReleases(other, next))).toEqual([true, true]);
    await claimAlone();
  });

  test("claims of two keys of a bucket that one call releases are each followed by the claim that waits for its key", async () => {
    const holders = KEYS.map((key) => makeClaim(key));
    const waiters = KEYS.map((key) => makeClaim(key));
    for (const claim of [...holders, ...waiters]) await driver.claim(claim);
    expect(await driver.release(toReleases(...holders))).toEqual([true, true]);
    expect(await query("select id from holdfast_4_claims where token > 0")).toHaveLength(2);
    expect(await driver.release(toReleases(...waiters))).toEqual([true, true]);
    await claimAlone();
  });

  test("the same call again, and a renewal, find it with its token and all its fields", async () => {
    const shared = makeClaim([{ key: "key", permits: 2, limit: 3 }], { tokenCount: 7, ttlMs: 20_000, label: "mine" });
    for (const ask of [
      () => driver.claim(shared),
      async () => (await driver.renew([shared]))[0],
      async () => (await driver.renew([{ ...shared, recall: true }]))[0],
    ]) {
      const { token } = await claimAlone(shared);
      const [listed] = (await driver.list({ key: "key" }, { max: 9 })).items;
      expect(await ask()).toMatchObject({ state: "held", token, tokenCount: 7, remainingMs: 20_000 });
      const [moved] = (await driver.list({ key: "key" }, { max: 9 })).items;
      const age = expect.any(Number);
      expect(moved).toMatchObject({ ...listed, ageMs: age, heldMs: age, answer: { state: "held", token } });
      const beside = makeClaim([{ key: "key", permits: 1, limit: 3 }]);
      expect(await driver.claim(beside)).toMatchObject({ state: "held" });
      expect(await driver.release(toReleases(shared, beside))).toEqual([true, true]);
    }
  });

  test("released while a call of it is unanswered, it leaves a tombstone, and that call is refused", async () => {
    const { claim } = await claimAlone();
    expect(await driver.release([{ claim, hasUnansweredClaim: true }])).toEqual([true]);
    expect(await driver.claim(claim), "a late call").toEqual({ state: "none", reason: "released" });
    await query("update holdfast_4_tombstones set expires = 1");
    await lockOnce("key");
    await claimAlone();
  });

  test("after the rows of a key were deleted by hand, it is granted again, once and again", async () => {
    const { claim } = await claimAlone();
    expect(await driver.claim(makeClaim("key"))).toMatchObject({ state: "waiting" });
    // a walk notes what is in use
    expect(await driver.claim(makeClaim("key", { wait: false }))).toEqual({ state: "none" });
    await query("delete from holdfast_4_claims");
    const next = makeClaim("key");
    expect(await driver.claim(next)).toMatchObject({ state: "held" });
    expect(await driver.claim(makeClaim("key", { wait: false }))).toEqual({ state: "none" });
    expect(await driver.release(toReleases(claim, next))).toEqual([false, true]);
    await lockOnce("key");
    await claimAlone();
  });

  test("it is detached and revoked as any other", async () => {
    const detached = await claimAlone();
    expect(await driver.detach?.([detached.claim])).toEqual([true]);
    expect(await driver.claim(makeClaim("key", { wait: false }))).toEqual({ state: "none" });
    expect(await driver.release(toReleases(detached.claim))).toEqual([true]);
    expect(await driver.claim(detached.claim), "a late call").toEqual({ state: "none", reason: "released" });
    await query("update holdfast_4_tombstones set expires = 1");
    await lockOnce("key");
    for (const now of [false, true]) {
      const { claim, token } = await claimAlone();
      expect(await driver.revoke?.([{ key: "key", token, now }])).toEqual([true]);
      expect(await driver.renew([claim])).toEqual([{ state: "none", reason: "revoked" }]);
      expect(await driver.release(toReleases(claim))).toEqual([false]);
      await query("update holdfast_4_tombstones set expires = 1");
      await lockOnce("key");
    }
  });

  test("a claim call that arrives after its release is refused, also if its bucket is used meanwhile", async () => {
    const { claim } = await claimAlone();
    expect(await driver.release([{ claim, hasUnansweredClaim: true }])).toEqual([true]);
    const unsent = makeClaim("key");
    expect(await driver.release([{ claim: unsent, hasUnansweredClaim: true }])).toEqual([false]);
    for (const late of [claim, unsent]) {
      await lockOnce("key");
      expect(await driver.claim(late)).toEqual({ state: "none", reason: "released" });
    }
  });

  test("releases of one bucket in one call, of which a claim call may still arrive, leave a tombstone that is obeyed", async () => {
    const { claim } = await claimAlone();
    const unsent = makeClaim(KEYS[1]);
    expect(await driver.release([...toReleases(claim), { claim: unsent, hasUnansweredClaim: true }])).toEqual([
      true,
      false,
    ]);
    expect(await driver.claim(unsent)).toEqual({ state: "none", reason: "released" });
  });

  test("a claim with a floor ahead of the clock has a row of its own, and its bucket is not free", async () => {
    const { claim, token } = await claimAlone();
    expect(await driver.release(toReleases(claim))).toEqual([true]);
    const ahead = makeClaim("key", { floor: token + 3_600_000_000n });
    expect(await driver.claim(ahead)).toMatchObject({ state: "held" });
    expect(await readPlaces()).toEqual({ queued: [ahead.id], alone: [] });
    expect(await driver.claim(makeClaim("key", { wait: false }))).toEqual({ state: "none" });
    expect(await driver.release(toReleases(ahead))).toEqual([true]);
    await claimAlone();
  });

  test("its lease ends: it is over for its holder, and the key is granted to the next one", async () => {
    const { claim } = await claimAlone();
    await query("update holdfast_4_buckets set expires = 1 where form = 'lone'");
    expect((await driver.list({ prefix: "" }, { max: 9 })).items).toEqual([]);
    const next = makeClaim("key");
    expect(await driver.claim(next)).toMatchObject({ state: "held" });
    expect(await driver.renew([claim])).toEqual([{ state: "none" }]);
    expect(await driver.release(toReleases(claim, next))).toEqual([false, true]);
  });

  test("lists have the claims of both places in order, page by page", async () => {
    const keys = Array.from({ length: 30 }, (_, index) => `list ${String(index).padStart(2, "0")}`);
    for (const key of keys) await lockOnce(key);
    const claims = [...keys, ...keys.filter((_, index) => index % 3 === 0)].map((key) => makeClaim(key));
    for (const claim of claims) await driver.claim(claim);
    const listed: string[] = [];
    let after: string | undefined;
    do {
      const { items, next } = await driver.list({ prefix: "list" }, { max: 7, after });
      listed.push(...items.map(({ locks: [lock] }) => lock.key));
      after = next;
    } while (after !== undefined);
    expect(listed).toEqual(claims.map(({ locks: [lock] }) => lock.key).sort());
    expect((await readPlaces()).alone.length).toBeGreaterThan(10);
  });
});
