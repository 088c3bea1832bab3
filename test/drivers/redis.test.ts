import { Redis } from "ioredis";
import { redis } from "../../src/drivers/redis/driver.ts";
import { redisConforms } from "../support/redis-store.ts";

redisConforms("Redis by ioredis", ({ port }, prefix) => redis(() => new Redis(port, "127.0.0.1"), { prefix }));
