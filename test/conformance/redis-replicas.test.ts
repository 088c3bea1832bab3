/** The suite with a replica to wait for. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import { testDriver } from "../client/suite.ts";
import type { RedisServer } from "../support/stores/redis.ts";
import { createShortRunner, REDIS_SUITE_OPTIONS } from "../support/stores/redis-conformance.ts";
import { findRedisViolations } from "../support/stores/redis-inspector.ts";
import { startRedisPair } from "../support/stores/redis-replication.ts";

let pair: readonly [RedisServer, RedisServer];
let admin: Redis;
beforeAll(async () => {
  pair = await startRedisPair();
  admin = new Redis(pair[0].port, "127.0.0.1");
  await admin.ping(); // else the first test would see it open
}, 180_000);
afterAll(async () => {
  admin.disconnect();
  for (const server of pair) await server.stop();
});

testDriver(createShortRunner(), "Redis with a replica that is waited for", {
  ...REDIS_SUITE_OPTIONS,
  open: async () => {
    const prefix = randomUUID();
    const createRedis = (): Redis => new Redis(pair[0].port, "127.0.0.1");
    return {
      driver: () => redis(createRedis, { prefix, replicas: { minAcks: 1 } }),
      inspect: () => findRedisViolations(admin, prefix),
    };
  },
});
