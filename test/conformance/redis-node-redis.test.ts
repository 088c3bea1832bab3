import { createClient } from "redis";
import { redis } from "../../src/drivers/redis/driver.ts";
import { registerRedisConformance } from "../support/stores/redis-conformance.ts";

registerRedisConformance("Redis by node-redis", ({ url }, prefix) => redis(() => createClient({ url }), { prefix }));
