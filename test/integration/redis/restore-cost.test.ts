// The cost to the server when many clients place their claims on one key again (guardDataLoss): it serves no other meanwhile.

import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { createRedisFixture, markLongInUse } from "../../support/stores/redis-fixture.ts";

const TTL_MS = 30_000;
const READERS = 300;

withRedis((server) => {
  const fixtures: ReturnType<typeof createRedisFixture>[] = [];
  const openFixture = async () => {
    const fixture = createRedisFixture(server().port);
    fixtures.push(fixture);
    await markLongInUse(fixture.admin, fixture.prefix);
    const options = { prefix: fixture.prefix, guardDataLoss: { maxTtlMs: TTL_MS } };
    return { fixture, lockClient: await fixture.open(redis(() => new Redis(server().port, "127.0.0.1"), options)) };
  };
  const readers = (count: number): Claim[] =>
    Array.from({ length: count }, () =>
      makeClaim([{ key: "key", permits: 1, limit: ALL_PERMITS }], { ttlMs: TTL_MS, tokenCount: 1 }),
    );
  const reads = async (admin: Redis): Promise<number> =>
    Number(/cmdstat_get:calls=(\d+)/.exec(await admin.info("commandstats"))?.[1] ?? 0);

  test("many readers are restored in one call, which examines each a constant number of times", async () => {
    const { fixture, lockClient } = await openFixture();
    const claims = readers(READERS);
    await Promise.all(claims.map((claim) => lockClient.claimHeld(claim)));
    await fixture.admin.flushall();
    await fixture.admin.config("RESETSTAT");
    const answers = await lockClient.driver.renew(claims);
    expect(answers.filter((answer) => answer?.state === "held")).toHaveLength(READERS);
    expect(await reads(fixture.admin)).toBeLessThan(10 * READERS);
    await lockClient.driver.release(toReleases(...claims));
    await fixture.close();
  });

  test("a writer that displaces many readers ends them all, at that cost", async () => {
    const { fixture, lockClient } = await openFixture();
    const claims = readers(READERS);
    await Promise.all(claims.map((claim) => lockClient.claimHeld(claim)));
    const writer = makeClaim("key", { ttlMs: TTL_MS });
    const written = await Promise.all(
      (await fixture.keys()).map(async (key) => ({ key, value: await fixture.admin.dumpBuffer(key) })),
    );
    await lockClient.driver.release(toReleases(...claims));
    const { token } = await lockClient.claimHeld(writer);
    // as on a replica that missed the last writes
    await fixture.admin.del(await fixture.keys());
    for (const { key, value } of written) {
      if (!key.endsWith(":b") && value !== null) await fixture.admin.restore(key, 4 * TTL_MS, value);
    }
    await fixture.admin.config("RESETSTAT");
    expect(await lockClient.renewOnce(writer)).toMatchObject({ state: "held", token });
    expect(await reads(fixture.admin)).toBeLessThan(10 * READERS);
    const [view, ...otherViews] = (await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items;
    expect([view?.answer, otherViews]).toMatchObject([{ state: "held", token }, []]);
    await lockClient.driver.release(toReleases(writer));
    await fixture.close();
  });
});
