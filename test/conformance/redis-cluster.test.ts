import { randomUUID } from "node:crypto";
import { Cluster } from "ioredis";
import { Cluster as Cluster5 } from "ioredis5";
import { Cluster as IovalkeyCluster } from "iovalkey";
import { createCluster } from "redis";
import { createCluster as createCluster5 } from "redis5";
import { afterAll, beforeAll, describe } from "vitest";
import type { RedisClient } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { testDriver } from "../client/suite.ts";
import type { RedisCluster } from "../support/stores/redis-cluster.ts";
import { startRedisCluster } from "../support/stores/redis-cluster.ts";
import { createShortRunner, REDIS_SUITE_OPTIONS } from "../support/stores/redis-conformance.ts";
import { findRedisViolations } from "../support/stores/redis-inspector.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster(3);
}, 180_000);
afterAll(() => cluster.stop());

const freshPrefix = (): { host: string; port: number }[] => cluster.ports.map((port) => ({ host: "127.0.0.1", port }));
const clusterNodes = (): { url: string }[] => cluster.ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));

const newestClients: Readonly<Record<string, () => RedisClient>> = {
  ioredis: () => new Cluster(freshPrefix()),
  "node-redis": () => createCluster({ rootNodes: clusterNodes() }),
};
const olderClients: Readonly<Record<string, () => RedisClient>> = {
  "ioredis 5": () => new Cluster5(freshPrefix()),
  iovalkey: () => new IovalkeyCluster(freshPrefix()),
  "node-redis 5": () => createCluster5({ rootNodes: clusterNodes() }),
};
const long = process.env.HOLDFAST_LONG === "1";
const clients = long ? { ...newestClients, ...olderClients } : newestClients;
/** The scripts are the same for all: one client plays all seeds, on five it would take an hour. */
const random = long ? { seeds: 40, steps: 200 } : REDIS_SUITE_OPTIONS.random;

describe.each(Object.keys(clients))("a Cluster by %s", (name) => {
  testDriver(createShortRunner(), `Redis Cluster by ${name}`, {
    ...REDIS_SUITE_OPTIONS,
    ...(name !== "ioredis" && { random }),
    traits: { manyKeys: false, recall: "push" },
    open: async () => {
      const prefix = randomUUID();
      return {
        driver: () => redis(clients[name] as () => RedisClient, { prefix }),
        inspect: async () => {
          const each = cluster.admin.map((admin) => findRedisViolations(admin, prefix));
          return (await Promise.all(each)).flat();
        },
      };
    },
  });
});
