import { createClient } from "redis";
import { redis } from "../../src/drivers/redis/driver.ts";
import { redisConforms } from "../support/redis-store.ts";

redisConforms("Redis by node-redis", ({ url }, prefix) => redis(() => createClient({ url }), { prefix }));
