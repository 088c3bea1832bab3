/** guardDataLoss in a Cluster, where each bucket has a birth record of its own. */

import { randomUUID } from "node:crypto";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { slotOf } from "../../src/drivers/redis/client/slots.ts";
import type { RedisClient } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { ALL_BUCKETS, bucketOf } from "../../src/drivers/redis/words.ts";
import type { Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import type { Claim } from "../../src/spi/driver.ts";
import { load } from "../support/redis-load.ts";
import { claimOf, longInUse } from "../support/redis-scene.ts";
import type { RedisCluster } from "../support/services/redis-cluster.ts";
import { startRedisCluster } from "../support/services/redis-cluster.ts";
import { until } from "../support/wait-for.ts";

/** A master that comes back takes two seconds to take part again, which has to fit in before a lease ends. */
const TTL_MS = 9_000;
const prefix = randomUUID();
let cluster: RedisCluster;
beforeAll(async () => {
  // a restart that takes its time is found out by the others: they must go on all the same
  cluster = await startRedisCluster(3, false, { settings: ["--cluster-require-full-coverage", "no"] });
  for (const bucket of ALL_BUCKETS) {
    await longInUse(cluster.admin[await cluster.masterOf(slotIn(bucket))] as never, prefix, bucket);
  }
}, 180_000);
afterAll(() => cluster.stop());

const slotIn = (bucket: string): number => slotOf(`${prefix}:1:{${bucket}}:n`);
const homeOf = (key: string): Promise<number> => cluster.masterOf(slotIn(bucketOf(key)));
/** A key that this master has, or does not have. */
async function keyAt(home: number, isThere: boolean, name: string): Promise<string> {
  let at = 0;
  while (((await homeOf(`${name} ${at}`)) === home) !== isThere) at++;
  return `${name} ${at}`;
}

const ioredis = (): RedisClient =>
  new Cluster(
    cluster.ports.map((port) => ({ host: "127.0.0.1", port })),
    { clusterRetryStrategy: () => 50 },
  );
const nodeRedis = (): RedisClient =>
  createCluster({ rootNodes: cluster.ports.map((port) => ({ url: `redis://127.0.0.1:${port}` })) });

test("a master that is restarted empty under load grants nobody over a live holder; the others do not pause", {
  timeout: 60_000,
}, async () => {
  const warnings: string[] = [];
  const client = (make: () => RedisClient): Locks =>
    createLocks(
      redis(make, {
        prefix,
        commandTimeoutMs: 1_000,
        guardDataLoss: { longestTtlMs: TTL_MS },
        warn: (text) => warnings.push(text),
      }),
      { ttl: TTL_MS, handoffs: 1 },
    );
  await using one = client(ioredis);
  await using other = client(nodeRedis);
  const home = await homeOf("held");
  const [there, elsewhere] = [await keyAt(home, true, "there"), await keyAt(home, false, "elsewhere")];
  const held = [await one.acquire("held"), await other.acquire(await keyAt(home, true, "held too"))];
  {
    await using here = load([one, other], there, 3);
    await using away = load([one, other], elsewhere, 3);
    await here.goesOn();
    await away.goesOn();
    const began = performance.now();
    await cluster.restart(home);
    await away.goesOn(TTL_MS / 2);
    const rivals = held.map(({ keys }, at) => [other, one][at]!.acquire(keys[0] as string, { wait: "40s" }));
    // what was held for the moment when it forgot is placed anew by those who hold, if they hold still
    await here.goesOn(30_000);
    expect(performance.now() - began, "it held its breath").toBeGreaterThan(TTL_MS * 0.9);
    await here.everybodyServed();
    expect(here.overlaps + away.overlaps).toBe(0);
    for (const [at, lock] of held.entries()) {
      expect(lock.signal.aborted).toBe(false);
      expect(await lock.release()).toBe(true);
      const next = await (rivals[at] as (typeof rivals)[0]);
      expect(next.token).toBeGreaterThan(lock.token);
      await next.release();
    }
  }
  expect(warnings.filter((text) => /has lost/.test(text))).toEqual([]);
  await until(async () => (await one.list("held")).length === 0, { within: 5_000, what: "the end" });
});

test("a slot that moves looks like another run: its claims line up for the longest ttl, and who holds goes on holding", {
  timeout: 60_000,
}, async () => {
  const [own, longestTtlMs] = [randomUUID(), 4_000];
  const bucket = bucketOf("held");
  const slot = slotOf(`${own}:1:{${bucket}}:n`);
  const home = await cluster.masterOf(slot);
  await longInUse(cluster.admin[home] as never, own, bucket);
  const driver = redis(ioredis, { prefix: own, guardDataLoss: { longestTtlMs }, warn: () => undefined });
  await driver.open(() => undefined);
  let at = 0;
  while (bucketOf(`other ${at}`) !== bucket) at++;
  const claim = (key: string): Claim => claimOf(key, { ttlMs: longestTtlMs });
  const stateOf = async (one: Claim): Promise<string | undefined> => (await driver.renew([one]))[0]?.state;
  const [held, free, late] = [claim("held"), claim(`other ${at}`), claim(`other ${at}`)];
  for (const one of [held, free]) expect(await driver.claim(one)).toMatchObject({ state: "held" });
  await driver.release([free]);
  await cluster.move(slot, (home + 1) % 3, async () => undefined);
  const moved = performance.now();
  expect(await driver.claim(late)).toMatchObject({ state: "waiting" });
  const isGranted = async (): Promise<boolean> => {
    expect(await stateOf(held)).toBe("held");
    return (await stateOf(late)) === "held";
  };
  await until(isGranted, { within: 20_000, what: "the grant" });
  expect(performance.now() - moved).toBeGreaterThan(longestTtlMs * 0.9);
  expect(await driver.release([held, late])).toEqual([true, true]);
  await driver.close();
});
