/** The inspector of Redis finds each fault that is planted in the driver's keys. */

import { afterEach, beforeEach, expect, test } from "vitest";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(async () => {
    const keys = await fixture.keys();
    if (keys.length > 0) await fixture.admin.del(...keys);
    await fixture.close();
  });

  const named = async (end: string): Promise<string> =>
    (await fixture.keys()).find((key) => key.endsWith(end)) as string;
  /** The set of a key's queue. */
  const setOf = (key: string, kind: "a" | "w"): string => fixture.hashOf(key).replace(/h$/, `${kind}:${key}`);
  const readViolations = (): Promise<string[]> => findRedisViolations(fixture.admin, fixture.prefix);
  const makeSharedClaim = (key: string, permits: number, limit: number) => makeClaim([{ key, permits, limit }]);

  /** Plants an entry in the queue of a key. */
  async function planted(key: string, kind: "a" | "w", claim: Claim): Promise<void> {
    const [{ key: first, permits, limit }] = claim.locks;
    const entry = `${toBucket(first)}${claim.id}:${permits}:${limit}:${String(claim.ttlMs)}`;
    await fixture.admin.zadd(setOf(key, kind), Date.now() + 60_000, entry);
    await fixture.admin.pexpire(setOf(key, kind), 60_000);
  }

  /** Two claims that share a key, so in full form. */
  const shared = (permits: number, limit: number): [Claim, Claim] => [
    makeSharedClaim("a", permits, limit),
    makeSharedClaim("a", permits, limit),
  ];

  async function held(...claims: Claim[]): Promise<void> {
    const lockClient = await fixture.open();
    for (const claim of claims) await lockClient.claimHeld(claim);
    expect(await readViolations()).toEqual([]);
  }

  test("two holders of a mutex are found", async () => {
    const other = makeClaim("b");
    await held(...shared(1, 2), other);
    await planted("a", "a", other);
    expect((await readViolations()).join()).toMatch(/"a" is held beyond its limit/);
  });

  test("a semaphore held beyond its limit is found", async () => {
    const other = makeSharedClaim("b", 2, 3);
    await held(...shared(1, 3), other);
    await planted("a", "a", other);
    expect((await readViolations()).join()).toMatch(/"a" is held beyond its limit: .*\(2 of 3\)/);
  });

  test("a claim that holds a key and waits for it is found", async () => {
    const claim = makeClaim("a");
    await held(claim);
    await planted("a", "w", claim);
    expect((await readViolations()).join()).toMatch(/holds "a" and stands in its queue/);
  });

  test.each([":a:a", ":h"])("a key without an expiry is found (%s)", async (end) => {
    await held(...shared(1, 3));
    const key = await named(end);
    await fixture.admin.persist(key);
    expect(await readViolations()).toEqual([`${key} has no end`]);
  });

  test("an entry without a claim and a claim without an entry are found", async () => {
    const [claim, other] = shared(1, 3);
    await held(claim, other);
    await fixture.admin.hdel(fixture.hashOf("a"), `c:${claim.id}`);
    const entries = await fixture.admin.zrange(setOf("a", "a"), "0", "-1");
    await fixture.admin.zrem(setOf("a", "a"), String(entries.find((entry) => entry.includes(other.id))));
    const violations = await readViolations();
    expect(violations.length).toBe(3);
    expect(violations.join()).toMatch(/the totals of "a"/);
    expect(violations.join()).toMatch(/the place of .* \(held\) on "a" belongs to no claim/);
    expect(violations.join()).toMatch(/without its places, belongs to no claim/);
  });

  test.each(["used", "count", "recalling"])(
    "totals that are not those of the entries are found (%s)",
    async (total) => {
      await held(...shared(2, 4));
      await fixture.admin.zincrby(setOf("a", "a"), 1, total);
      expect((await readViolations()).join()).toMatch(/the totals of "a", \[.*\], belongs to no claim/);
    },
  );

  test("an entry of an ended claim is found", async () => {
    const [claim, other] = shared(1, 3);
    await held(claim, other);
    await fixture.admin.hset(fixture.hashOf("a"), `c:${claim.id}`, `x ${Date.now() + 60_000} 60000 released`);
    expect((await readViolations()).join()).toMatch(/the place of .*, which has ended, belongs to no claim/);
  });

  test("a token above its counter is found", async () => {
    await held(makeClaim("a"));
    await fixture.admin.hdel(fixture.hashOf("a"), "n");
    expect((await readViolations()).join()).toMatch(/above its counter/);
  });

  test("a form that is not that of its queue is found", async () => {
    const [holder, waiter] = [makeClaim("a"), makeClaim("a")];
    const lockClient = await fixture.open();
    await lockClient.claimHeld(holder);
    await lockClient.claim(waiter);
    const hash = fixture.hashOf("a");
    const record = (await fixture.admin.hgetBuffer(hash, "k:a")) as Buffer;
    expect(await readViolations()).toEqual([]);
    await fixture.admin.hset(hash, "k:a", Buffer.concat([Buffer.from("T0"), record.subarray(2)]));
    expect((await readViolations()).join()).toMatch(/the queue of "a", of which its holder knows otherwise/);
    await fixture.admin.hdel(hash, "k:a");
    expect((await readViolations()).join()).toMatch(/the queue of "a", which is free/);
    await fixture.admin.hset(hash, "k:a", "F");
    await fixture.admin.hset(hash, `c:${holder.id}`, Buffer.concat([Buffer.from("C0"), record.subarray(2)]));
    await planted("a", "a", holder);
    expect((await readViolations()).join()).toMatch(/the full form of "a", with one holder/);
  });

  test("nothing is found in another prefix, nor in foreign keys", async () => {
    await held(makeClaim("a"));
    await fixture.admin.set(`${fixture.prefix}:mine`, "for ever");
    expect(await readViolations()).toEqual([]);
    await fixture.admin.persist(fixture.hashOf("a"));
    expect(await findRedisViolations(fixture.admin, `${fixture.prefix}:another`)).toEqual([]);
  });
});
