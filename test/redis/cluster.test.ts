import { randomUUID } from "node:crypto";
import { Cluster } from "ioredis";
import { Cluster as Cluster5 } from "ioredis5";
import { Cluster as IovalkeyCluster } from "iovalkey";
import { createCluster } from "redis";
import { createCluster as createCluster5 } from "redis5";
import { afterAll, beforeAll, describe } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import type { RedisClient } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { redisViolations } from "../support/inspect-redis.ts";
import { OPTIONS, shortRunner } from "../support/redis-store.ts";
import type { RedisCluster } from "../support/services/redis-cluster.ts";
import { startRedisCluster } from "../support/services/redis-cluster.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster(3);
}, 180_000);
afterAll(() => cluster.stop());

const places = (): { host: string; port: number }[] => cluster.ports.map((port) => ({ host: "127.0.0.1", port }));
const rootNodes = (): { url: string }[] => cluster.ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));

const newest: Readonly<Record<string, () => RedisClient>> = {
  ioredis: () => new Cluster(places()),
  "node-redis": () => createCluster({ rootNodes: rootNodes() }),
};
const others: Readonly<Record<string, () => RedisClient>> = {
  "ioredis 5": () => new Cluster5(places()),
  iovalkey: () => new IovalkeyCluster(places()),
  "node-redis 5": () => createCluster5({ rootNodes: rootNodes() }),
};
const long = process.env.HOLDFAST_LONG === "1";
const clients = long ? { ...newest, ...others } : newest;
/** The scripts are the same for all: one client plays all seeds, on five it would take an hour. */
const random = long ? { seeds: 40, steps: 200 } : OPTIONS.random;

describe.each(Object.keys(clients))("a Cluster by %s", (name) => {
  conformance(shortRunner(), `Redis Cluster by ${name}`, {
    ...OPTIONS,
    ...(name !== "ioredis" && { random }),
    traits: { manyKeys: false },
    open: async () => {
      const prefix = randomUUID();
      return {
        driver: () => redis(clients[name] as () => RedisClient, { prefix }),
        inspect: async () => {
          const each = cluster.admin.map((admin) => redisViolations(admin, prefix));
          return (await Promise.all(each)).flat();
        },
      };
    },
  });
});
