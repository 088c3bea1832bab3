// Options that users set on their own clients, and on the masters of a Cluster.

import { randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5 } from "ioredis5";
import { Cluster as IovalkeyCluster } from "iovalkey";
import { createCluster, createSentinel } from "redis";
import { createSentinel as createSentinel5 } from "redis5";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toHashSlot } from "../../../src/drivers/redis/hash-slot.ts";
import { ALL_BUCKETS, toRoutingKey } from "../../../src/drivers/redis/key-names.ts";
import { decodeFlags } from "../../../src/drivers/reply-codec.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisCluster } from "../../support/stores/redis-cluster.ts";
import { startRedisCluster } from "../../support/stores/redis-cluster.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

describe("a Cluster", () => {
  let cluster: RedisCluster;
  let fixture: RedisFixture;
  const seedNodes = (): { host: string; port: number }[] => cluster.ports.map((port) => ({ host: "127.0.0.1", port }));
  beforeAll(async () => {
    cluster = await startRedisCluster(3);
  }, 180_000);
  beforeEach(() => {
    fixture = createRedisFixture(cluster.ports[0] as number, { prefix: randomUUID() });
  });
  afterEach(() => fixture.close());
  afterAll(() => cluster.stop());

  test("a keyPrefix of ioredis is ignored: such a client sees the same locks, and receives grants", async () => {
    const { prefix } = fixture;
    const plainClient = await fixture.open(redis(() => new Cluster(seedNodes()), { prefix }));
    const prefixed = [
      new Cluster(seedNodes(), { keyPrefix: "app:" }),
      new Cluster5(seedNodes(), { keyPrefix: "app:" }),
    ];
    for (const client of prefixed) {
      const other = await fixture.open(redis(() => client, { prefix }));
      for (const key of ["one", "two", "three", "four"]) {
        const [first, second] = [makeClaim(key), makeClaim(key)];
        await plainClient.claimHeld(first);
        expect((await other.claim(second)).state).toBe("waiting");
        await plainClient.driver.release(toReleases(first));
        const push = await until(() => other.pushes.find(({ id }) => id === second.id), {
          within: 5_000,
          what: `the push for ${key}`,
        });
        expect(push.answer).toMatchObject({ state: "held" });
        expect(await other.driver.release(toReleases(second))).toEqual([true]);
      }
    }
  });

  test("is checked on every master by doctor: its configuration, and keys without a time to live", async () => {
    const { prefix } = fixture;
    const clients: readonly (() => RedisClient)[] = [
      () => new Cluster(seedNodes(), { keyPrefix: "app:" }),
      () => createCluster({ rootNodes: seedNodes().map((socket) => ({ socket })) }),
    ];
    const clusterClient = new Cluster(seedNodes());
    for (const slot of [0, 6_000, 16_000]) {
      const bucket = ALL_BUCKETS.find(
        (candidate) => Math.abs(toHashSlot(toRoutingKey(prefix, candidate)) - slot) < 2_000,
      );
      await clusterClient.set(`${prefix}:3:{${bucket}}:x`, "1");
    }
    const last = cluster.admin.at(-1) as Redis;
    await last.config("SET", "maxmemory-policy", "volatile-lru");
    for (const client of clients) {
      const lockClient = await fixture.open(redis(client, { prefix, allowEviction: true, warn: () => undefined }));
      const diagnosis = await lockClient.driver.diagnose?.();
      expect(diagnosis?.find(({ name }) => name === "memory")).toMatchObject({
        status: "fail",
        message: expect.stringMatching(/^maxmemory-policy is volatile-lru.* \(1 of 3 masters\)$/),
      });
      const keys = diagnosis?.find(({ name }) => name === "keys");
      expect(keys?.message).toMatch(/^3 of \d+ keys of Holdfast have no time to live$/);
    }
    await last.config("SET", "maxmemory-policy", "noeviction");
    clusterClient.disconnect();
  });

  test("with one master that evicts keys is refused", async () => {
    const { prefix } = fixture;
    const clients: readonly (() => RedisClient)[] = [
      () => new Cluster(seedNodes()),
      () => createCluster({ rootNodes: seedNodes().map((socket) => ({ socket })) }),
    ];
    for (const [index, admin] of cluster.admin.entries()) {
      await admin.config("SET", "maxmemory-policy", "volatile-lru");
      for (const client of clients) {
        const pendingOpen = fixture.open(redis(client, { prefix }));
        await expect(pendingOpen, `master ${index}`).rejects.toThrow("maxmemory-policy is volatile-lru");
        const allowed = await fixture.open(redis(client, { prefix, allowEviction: true, warn: () => undefined }));
        await allowed.driver.close();
      }
      await admin.config("SET", "maxmemory-policy", "noeviction");
    }
  });
});

describe("a client with unsuitable options is refused at once, with the reason", () => {
  const unreachableNodes = [{ host: "127.0.0.1", port: 1 }];
  const lazyOptions = { lazyConnect: true };

  test.each([Cluster, Cluster5, IovalkeyCluster])("a Cluster by ioredis with automatic pipelining", (Made) => {
    const client = new Made(unreachableNodes, { ...lazyOptions, enableAutoPipelining: true });
    expect(() => redis(client)).toThrow(TypeError);
    expect(() => redis(client)).toThrow(/^client must have enableAutoPipelining off/);
  });

  test.each([Cluster, Cluster5, IovalkeyCluster])("a Cluster by ioredis whose prefix has a hash tag", (Made) => {
    for (const options of [{ keyPrefix: "{app}:" }, { redisOptions: { keyPrefix: "{app}:" } }]) {
      const client = new Made(unreachableNodes, { ...lazyOptions, ...options });
      expect(() => redis(client)).toThrow(/^client must have no keyPrefix with braces/);
    }
    expect(() => redis(new Redis({ ...lazyOptions, keyPrefix: "{app}:" }))).not.toThrow();
  });

  test("Sentinels by node-redis: ioredis or iovalkey is required", () => {
    const options = { name: "mymaster", sentinelRootNodes: unreachableNodes };
    for (const client of [createSentinel(options), createSentinel5(options)]) {
      expect(() => redis(client as never)).toThrow(/^client must be ioredis or iovalkey for Sentinels/);
    }
  });
});

test("the reply of another caller's MULTI is not taken for the answer to a release, however many were released", () => {
  expect(decodeFlags("101101", 6, "redis").flags).toEqual([true, false, true, true, false, true]);
  expect(() => decodeFlags("QUEUED", 6, "redis")).toThrow("answered");
});
