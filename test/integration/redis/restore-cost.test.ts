// The cost to the server when many clients place their claims on one key again (guardDataLoss): it serves no other meanwhile.

import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { createRedisFixture, makeClaim, markLongInUse } from "../../support/stores/redis-fixture.ts";

const TTL_MS = 30_000;
const READERS = 300;

withRedis((server) => {
  const scenes: ReturnType<typeof createRedisFixture>[] = [];
  const opened = async () => {
    const scene = createRedisFixture(server().port);
    scenes.push(scene);
    await markLongInUse(scene.admin, scene.prefix);
    const options = { prefix: scene.prefix, guardDataLoss: { maxTtlMs: TTL_MS } };
    return { scene, one: await scene.open(redis(() => new Redis(server().port, "127.0.0.1"), options)) };
  };
  const readers = (count: number): Claim[] =>
    Array.from({ length: count }, () =>
      makeClaim([{ key: "key", permits: 1, limit: ALL_PERMITS }], { ttlMs: TTL_MS, tokenCount: 1 }),
    );
  const reads = async (admin: Redis): Promise<number> =>
    Number(/cmdstat_get:calls=(\d+)/.exec(await admin.info("commandstats"))?.[1] ?? 0);

  test("many readers are restored in one call, which examines each a constant number of times", async () => {
    const { scene, one } = await opened();
    const claims = readers(READERS);
    await Promise.all(claims.map((claim) => one.claimHeld(claim)));
    await scene.admin.flushall();
    await scene.admin.config("RESETSTAT");
    const answers = await one.driver.renew(claims);
    expect(answers.filter((answer) => answer?.state === "held")).toHaveLength(READERS);
    expect(await reads(scene.admin)).toBeLessThan(10 * READERS);
    await one.driver.release(toReleases(...claims));
    await scene.close();
  });

  test("a writer that displaces many readers ends them all, at that cost", async () => {
    const { scene, one } = await opened();
    const claims = readers(READERS);
    await Promise.all(claims.map((claim) => one.claimHeld(claim)));
    const writer = makeClaim("key", { ttlMs: TTL_MS });
    const written = await Promise.all(
      (await scene.keys()).map(async (key) => ({ key, value: await scene.admin.dumpBuffer(key) })),
    );
    await one.driver.release(toReleases(...claims));
    const { token } = await one.claimHeld(writer);
    // as on a replica that missed the last writes
    await scene.admin.del(await scene.keys());
    for (const { key, value } of written) {
      if (!key.endsWith(":b") && value !== null) await scene.admin.restore(key, 4 * TTL_MS, value);
    }
    await scene.admin.config("RESETSTAT");
    expect(await one.renewOnce(writer)).toMatchObject({ state: "held", token });
    expect(await reads(scene.admin)).toBeLessThan(10 * READERS);
    const [view, ...more] = (await one.driver.list({ prefix: "key" }, { max: 10 })).items;
    expect([view?.answer, more]).toMatchObject([{ state: "held", token }, []]);
    await one.driver.release(toReleases(writer));
    await scene.close();
  });
});
