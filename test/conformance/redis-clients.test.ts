import { randomUUID } from "node:crypto";
import { Redis as Ioredis5 } from "ioredis5";
import { Redis as Iovalkey } from "iovalkey";
import { createClient as createClient5 } from "redis5";
import { describe } from "vitest";
import type { RedisClient } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { testDriver } from "../client/suite.ts";
import { createShortRunner, REDIS_SUITE_OPTIONS, withRedis } from "../support/stores/redis-conformance.ts";
import { findRedisViolations } from "../support/stores/redis-inspector.ts";

const clients: Readonly<Record<string, (port: number) => RedisClient>> = {
  "ioredis 5": (port) => new Ioredis5(port, "127.0.0.1"),
  iovalkey: (port) => new Iovalkey(port, "127.0.0.1"),
  "node-redis 5": (port) => createClient5({ url: `redis://127.0.0.1:${port}` }),
};

describe("other clients", () => {
  withRedis((server, admin) => {
    for (const [name, createRedis] of Object.entries(clients)) {
      testDriver(createShortRunner(), `Redis by ${name}`, {
        ...REDIS_SUITE_OPTIONS,
        open: async () => {
          const prefix = randomUUID();
          return {
            driver: () => redis(() => createRedis(server().port), { prefix }),
            inspect: () => findRedisViolations(admin(), prefix),
          };
        },
      });
    }
  });
});
