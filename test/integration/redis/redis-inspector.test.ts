/** The inspector of Redis finds each fault that is planted in the driver's keys. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
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
  const readViolations = (): Promise<string[]> => findRedisViolations(fixture.admin, fixture.prefix);
  const makeSharedClaim = (key: string, permits: number, limit: number) => makeClaim([{ key, permits, limit }]);

  /** Copies the entry of a holder of one key into the queue of another. */
  async function copied(from: string, to: string, kind: "a" | "w" = "a"): Promise<void> {
    const [place, score] = await fixture.admin.zrange(await named(`:a:${from}`), "0", "0", "WITHSCORES");
    const line = (await named(`:a:${to}`)).replace(`:a:${to}`, `:${kind}:${to}`);
    await fixture.admin.zadd(line, String(score), String(place));
    await fixture.admin.pexpire(line, 60_000);
  }

  async function held(...claims: Claim[]): Promise<void> {
    const lockClient = await fixture.open();
    for (const claim of claims) await lockClient.claimHeld(claim);
    expect(await readViolations()).toEqual([]);
  }

  test("two holders of a mutex are found", async () => {
    await held(makeClaim("a"), makeClaim("b"));
    await copied("b", "a");
    expect((await readViolations()).join()).toMatch(/"a" is held beyond its limit/);
  });

  test("a semaphore held beyond its limit is found", async () => {
    await held(makeSharedClaim("a", 2, 3), makeSharedClaim("b", 2, 3));
    await copied("b", "a");
    expect((await readViolations()).join()).toMatch(/"a" is held beyond its limit: .*\(2 of 3\), .*\(2 of 3\)/);
  });

  test("a claim that holds a key and waits for it is found", async () => {
    await held(makeClaim("a"));
    await copied("a", "a", "w");
    expect((await readViolations()).join()).toMatch(/holds "a" and stands in its queue/);
  });

  test.each([":a:a", ":i", ":n"])("a key without an expiry is found (%s)", async (end) => {
    await held(makeClaim("a"));
    const key = await named(end);
    await fixture.admin.persist(key);
    expect(await readViolations()).toEqual([`${key} has no end`]);
  });

  test("an entry without a claim and a claim without an entry are found", async () => {
    const claim = makeClaim("a");
    await held(claim, makeClaim("b"));
    await fixture.admin.del(await named(`:c:${claim.id}`), await named(":a:b"));
    const violations = await readViolations();
    expect(violations.length).toBe(2);
    expect(violations.join()).toMatch(/the place of .* \(held\) on "a" belongs to no claim/);
    expect(violations.join()).toMatch(/without its places, belongs to no claim/);
  });

  test("an entry of an ended claim is found", async () => {
    const claim = makeClaim("a");
    await held(claim);
    await fixture.admin.set(await named(`:c:${claim.id}`), "x released", "PX", 1_000);
    expect((await readViolations()).join()).toMatch(/the place of .*, which has ended, belongs to no claim/);
  });

  test("a token above its counter and a queue missing from the indexes are found", async () => {
    await held(makeClaim("a"));
    await fixture.admin.del(await named(":n"), await named(":i"));
    expect((await readViolations()).join()).toMatch(/no index names.*above its counter/);
  });

  test("nothing is found in another prefix, nor in foreign keys", async () => {
    await held(makeClaim("a"));
    await fixture.admin.set(`${fixture.prefix}:mine`, "for ever");
    expect(await readViolations()).toEqual([]);
    await fixture.admin.persist(await named(":a:a"));
    expect(await findRedisViolations(fixture.admin, `${fixture.prefix}:another`)).toEqual([]);
  });
});
