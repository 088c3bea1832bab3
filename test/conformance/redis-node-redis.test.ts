import { createClient } from "redis";
import { redis } from "../../src/drivers/redis/driver.ts";
import { registerRedisConformance } from "../support/stores/redis-conformance.ts";
import { createLibraryRunner } from "../support/stores/sql-conformance.ts";

// it differs from ioredis in its calls alone: what depends on those, and in long runs everything
registerRedisConformance(
  "Redis by node-redis",
  ({ url }, prefix) => redis(() => createClient({ url }), { prefix }),
  createLibraryRunner(),
);
