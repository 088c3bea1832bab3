/** A real master with its replica, which has all that the master had when this is settled. */

import { Redis } from "ioredis";
import { until } from "../wait-for.ts";
import type { RedisServer } from "./redis.ts";
import { startRedis } from "./redis.ts";

export async function startRedisPair(): Promise<readonly [master: RedisServer, replica: RedisServer]> {
  const master = await startRedis();
  const replica = await startRedis(["--replicaof", "127.0.0.1", String(master.port)]);
  const admin = new Redis(master.port, "127.0.0.1");
  await until(async () => /state=online/.test(await admin.info("replication")), { within: 30_000, what: "replica" });
  admin.disconnect();
  return [master, replica];
}
