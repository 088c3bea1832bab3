import { Redis } from "ioredis";
import { redis } from "../../src/drivers/redis/driver.ts";
import { registerRedisConformance } from "../support/stores/redis-conformance.ts";

registerRedisConformance("Redis by ioredis", ({ port }, prefix) =>
  redis(() => new Redis(port, "127.0.0.1"), { prefix }),
);
