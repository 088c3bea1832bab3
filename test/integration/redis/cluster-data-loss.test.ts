/** guardDataLoss in a Cluster, where each bucket has its own run record. */

import { randomUUID } from "node:crypto";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toHashSlot } from "../../../src/drivers/redis/hash-slot.ts";
import { ALL_BUCKETS, toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { startContention } from "../../support/contention-load.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { withHeldTokens } from "../../support/held-tokens.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisCluster } from "../../support/stores/redis-cluster.ts";
import { startRedisCluster } from "../../support/stores/redis-cluster.ts";
import { markLongInUse } from "../../support/stores/redis-fixture.ts";

/** A restarted master takes two seconds to join again, which must fit into a lease. */
const TTL_MS = 9_000;
const prefix = randomUUID();
let cluster: RedisCluster;
beforeAll(async () => {
  // the other masters notice a slow restart, and must continue nevertheless
  cluster = await startRedisCluster(3, false, { settings: ["--cluster-require-full-coverage", "no"] });
  for (const bucket of ALL_BUCKETS) {
    await markLongInUse(cluster.admin[await cluster.masterOf(bucketSlot(bucket))] as never, prefix, bucket);
  }
}, 180_000);
afterAll(() => cluster.stop());

const bucketSlot = (bucket: string): number => toHashSlot(`${prefix}:3:{${bucket}}:n`);
const keyMaster = (key: string): Promise<number> => cluster.masterOf(bucketSlot(toBucket(key)));
/** A key in a slot of this master, or of another one. */
async function findKeyAt(home: number, isThere: boolean, name: string): Promise<string> {
  let index = 0;
  while (((await keyMaster(`${name} ${index}`)) === home) !== isThere) index++;
  return `${name} ${index}`;
}

const ioredisCluster = (): RedisClient =>
  new Cluster(
    cluster.ports.map((port) => ({ host: "127.0.0.1", port })),
    { clusterRetryStrategy: () => 50 },
  );
const nodeRedisCluster = (): RedisClient =>
  createCluster({ rootNodes: cluster.ports.map((port) => ({ url: `redis://127.0.0.1:${port}` })) });

test("a master restarted empty under load grants no lock over a live holder; the others do not pause", {
  timeout: 60_000,
}, async () => {
  const warnings: string[] = [];
  const client = (createRedis: () => RedisClient): Locks =>
    createLocks(
      redis(createRedis, {
        prefix,
        commandTimeoutMs: 1_000,
        guardDataLoss: { maxTtlMs: TTL_MS },
        warn: (text) => warnings.push(text),
      }),
      { ttl: TTL_MS, order: "strict" },
    );
  await using locks = client(ioredisCluster);
  await using otherLocks = client(nodeRedisCluster);
  const home = await keyMaster("held");
  const [homeKey, otherKey] = [await findKeyAt(home, true, "there"), await findKeyAt(home, false, "elsewhere")];
  const held = [await locks.acquire("held"), await otherLocks.acquire(await findKeyAt(home, true, "held too"))];
  {
    await using load = startContention([locks, otherLocks], homeKey, 3);
    await using otherLoad = startContention([locks, otherLocks], otherKey, 3);
    await load.waitForProgress();
    await otherLoad.waitForProgress();
    const startedAt = performance.now();
    await cluster.restart(home);
    await otherLoad.waitForProgress(TTL_MS / 2);
    const waits = held.map(({ keys }, index) =>
      [otherLocks, locks][index]!.acquire(keys[0] as string, { wait: "40s" }),
    );
    // holds from before the loss are placed again by their holders
    await load.waitForProgress(30_000);
    expect(performance.now() - startedAt, "it held its breath").toBeGreaterThan(TTL_MS * 0.9);
    await load.waitUntilAllServed();
    expect(load.overlaps + otherLoad.overlaps).toBe(0);
    for (const [index, lock] of held.entries()) {
      expect(lock.signal.aborted).toBe(false);
      expect(await lock.release()).toBe(true);
      const next = await (waits[index] as (typeof waits)[0]);
      expect(next.token).toBeGreaterThan(lock.token);
      await next.release();
    }
  }
  expect(warnings.filter((text) => /has lost/.test(text))).toEqual([]);
  await until(async () => (await locks.list("held")).length === 0, { within: 5_000, what: "the end" });
});

test("a moved slot looks like another run: new claims queue for the longest ttl, and holders keep their locks", {
  timeout: 60_000,
}, async () => {
  const [own, maxTtlMs] = [randomUUID(), 4_000];
  const bucket = toBucket("held");
  const slot = toHashSlot(`${own}:3:{${bucket}}:n`);
  const home = await cluster.masterOf(slot);
  await markLongInUse(cluster.admin[home] as never, own, bucket);
  const guarded = redis(ioredisCluster, { prefix: own, guardDataLoss: { maxTtlMs }, warn: () => undefined });
  const driver = withHeldTokens(guarded);
  await driver.open(NO_EVENTS);
  let index = 0;
  while (toBucket(`other ${index}`) !== bucket) index++;
  const claim = (key: string): Claim => makeClaim(key, { ttlMs: maxTtlMs });
  const stateOf = async (claim: Claim): Promise<string | undefined> => (await driver.renew([claim]))[0]?.state;
  const [held, freeClaim, lateClaim] = [claim("held"), claim(`other ${index}`), claim(`other ${index}`)];
  for (const claim of [held, freeClaim]) expect(await driver.claim(claim)).toMatchObject({ state: "held" });
  await driver.release(toReleases(freeClaim));
  await cluster.move(slot, (home + 1) % 3, async () => undefined);
  const movedAt = performance.now();
  expect(await driver.claim(lateClaim)).toMatchObject({ state: "waiting" });
  const isGranted = async (): Promise<boolean> => {
    expect(await stateOf(held)).toBe("held");
    return (await stateOf(lateClaim)) === "held";
  };
  await until(isGranted, { within: 20_000, what: "the grant" });
  expect(performance.now() - movedAt).toBeGreaterThan(maxTtlMs * 0.9);
  expect(await driver.release(toReleases(held, lateClaim))).toEqual([true, true]);
  await driver.close();
});
