/** The inspector of Redis finds each fault that is planted in the driver's keys. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";

withRedis((server) => {
  let scene: RedisFixture;
  beforeEach(() => {
    scene = createRedisFixture(server().port);
  });
  afterEach(async () => {
    const keys = await scene.keys();
    if (keys.length > 0) await scene.admin.del(...keys);
    await scene.close();
  });

  const named = async (end: string): Promise<string> => (await scene.keys()).find((key) => key.endsWith(end)) as string;
  const found = (): Promise<string[]> => findRedisViolations(scene.admin, scene.prefix);
  const share = (key: string, permits: number, limit: number) => makeClaim([{ key, permits, limit }]);

  /** Copies the entry of a holder of one key into the queue of another. */
  async function copied(from: string, to: string, kind: "a" | "w" = "a"): Promise<void> {
    const [place, score] = await scene.admin.zrange(await named(`:a:${from}`), "0", "0", "WITHSCORES");
    const line = (await named(`:a:${to}`)).replace(`:a:${to}`, `:${kind}:${to}`);
    await scene.admin.zadd(line, String(score), String(place));
    await scene.admin.pexpire(line, 60_000);
  }

  async function held(...claims: Claim[]): Promise<void> {
    const one = await scene.open();
    for (const claim of claims) await one.claimHeld(claim);
    expect(await found()).toEqual([]);
  }

  test("two holders", async () => {
    await held(makeClaim("a"), makeClaim("b"));
    await copied("b", "a");
    expect((await found()).join()).toMatch(/"a" is held beyond its limit/);
  });

  test("an overfull semaphore", async () => {
    await held(share("a", 2, 3), share("b", 2, 3));
    await copied("b", "a");
    expect((await found()).join()).toMatch(/"a" is held beyond its limit: .*\(2 of 3\), .*\(2 of 3\)/);
  });

  test("a holder in a queue", async () => {
    await held(makeClaim("a"));
    await copied("a", "a", "w");
    expect((await found()).join()).toMatch(/holds "a" and stands in its queue/);
  });

  test.each([":a:a", ":i", ":n"])("a key without an end (%s)", async (end) => {
    await held(makeClaim("a"));
    const key = await named(end);
    await scene.admin.persist(key);
    expect(await found()).toEqual([`${key} has no end`]);
  });

  test("an orphan: an entry without a claim, and a claim without an entry", async () => {
    const claim = makeClaim("a");
    await held(claim, makeClaim("b"));
    await scene.admin.del(await named(`:c:${claim.id}`), await named(":a:b"));
    const wrong = await found();
    expect(wrong.length).toBe(2);
    expect(wrong.join()).toMatch(/the place of .* \(held\) on "a" belongs to no claim/);
    expect(wrong.join()).toMatch(/without its places, belongs to no claim/);
  });

  test("an entry of an ended claim", async () => {
    const claim = makeClaim("a");
    await held(claim);
    await scene.admin.set(await named(`:c:${claim.id}`), "x released", "PX", 1_000);
    expect((await found()).join()).toMatch(/the place of .*, which has ended, belongs to no claim/);
  });

  test("a token above its counter, and a queue missing from the indexes", async () => {
    await held(makeClaim("a"));
    await scene.admin.del(await named(":n"), await named(":i"));
    expect((await found()).join()).toMatch(/no index names.*above its counter/);
  });

  test("and none of these in another prefix, nor in foreign keys", async () => {
    await held(makeClaim("a"));
    await scene.admin.set(`${scene.prefix}:mine`, "for ever");
    expect(await found()).toEqual([]);
    await scene.admin.persist(await named(":a:a"));
    expect(await findRedisViolations(scene.admin, `${scene.prefix}:another`)).toEqual([]);
  });
});
