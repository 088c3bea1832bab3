// The Web Locks API over Redis.

import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { webLocks } from "../../../src/web-locks/index.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { defineWebLockTests } from "../../support/web-lock-behaviors.ts";

let server: RedisServer;
let client: Redis;
let locks: Locks | null = null;

beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port, "127.0.0.1");
});

afterEach(async () => {
  await locks?.close();
  locks = null;
});

afterAll(async () => {
  client.disconnect();
  await server.stop();
});

defineWebLockTests(async () => {
  locks = createLocks(redis(client, { silenceWarnings: ["appendonly"] }));
  return webLocks(locks);
});
