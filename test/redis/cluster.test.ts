import { randomUUID } from "node:crypto";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { afterAll, beforeAll, describe } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import type { RedisClient } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { OPTIONS, shortRunner } from "../support/redis-store.ts";
import type { RedisCluster } from "../support/services/redis-cluster.ts";
import { startRedisCluster } from "../support/services/redis-cluster.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster(3);
}, 180_000);
afterAll(() => cluster.stop());

const clients: Readonly<Record<string, () => RedisClient>> = {
  ioredis: () => new Cluster(cluster.ports.map((port) => ({ host: "127.0.0.1", port }))),
  "node-redis": () => createCluster({ rootNodes: cluster.ports.map((port) => ({ url: `redis://127.0.0.1:${port}` })) }),
};

describe.each(Object.keys(clients))("a Cluster by %s", (name) => {
  conformance(shortRunner(), `Redis Cluster by ${name}`, {
    ...OPTIONS,
    traits: { manyKeys: false },
    open: async () => {
      const prefix = randomUUID();
      return { driver: () => redis(clients[name] as () => RedisClient, { prefix }) };
    },
  });
});
