/** The suite with guardDataLoss, on stores that have been in use for long. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { conformance } from "../../src/conformance/suite.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { redisViolations } from "../support/inspect-redis.ts";
import { longInUse } from "../support/redis-scene.ts";
import { OPTIONS, shortRunner, withRedis } from "../support/redis-store.ts";

const LONGEST_MS = 86_400_000;

withRedis((server, admin) => {
  conformance(shortRunner(), "Redis with guardDataLoss", {
    ...OPTIONS,
    skip: [
      { test: "the longest lease is kept", reason: "a guarded store grants none longer than it holds its breath" },
    ],
    open: async () => {
      const prefix = randomUUID();
      await longInUse(admin(), prefix);
      const make = (): Redis => new Redis(server().port, "127.0.0.1");
      return {
        driver: () => redis(make, { prefix, guardDataLoss: { longestTtlMs: LONGEST_MS } }),
        inspect: () => redisViolations(admin(), prefix),
      };
    },
  });
});
