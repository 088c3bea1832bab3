/** Holdfast on Redis, and the floor below everything on Redis: two bare EVALSHA with the same client. */

import { createHash, randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { Lock } from "../../src/client/lock.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { LocksOptions } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { parsePort } from "../harness/address.ts";
import type { HoldKey, LockImplementation } from "../harness/closed-loop.ts";
import { losePushes } from "./lossy-driver.ts";

interface ClientOptions {
  readonly enableAutoPipelining?: boolean;
}

/** A connected client of ioredis, as most users have one. */
export async function createIoredis(address: string, options: ClientOptions = {}): Promise<Redis> {
  const client = new Redis({ host: "127.0.0.1", port: parsePort(address) ?? 0, lazyConnect: true, ...options });
  await client.connect();
  return client;
}

export async function openRedisHoldfast(
  address: string,
  options: LocksOptions = {},
  client: ClientOptions = {},
): Promise<LockImplementation<Lock>> {
  return openDriver(createDriver(address, client), options);
}

/** With every second push lost. */
export async function openRedisLossy(address: string, options: LocksOptions): Promise<LockImplementation<Lock>> {
  return openDriver(losePushes(createDriver(address)), options);
}

function createDriver(address: string, client: ClientOptions = {}): Driver {
  const createRedis = (): Redis => new Redis({ host: "127.0.0.1", port: parsePort(address) ?? 0, ...client });
  // of a server that keeps nothing, which is as wanted here
  return redis(createRedis, { warn: () => undefined });
}

function openDriver(driver: Driver, options: LocksOptions): LockImplementation<Lock> {
  const locks = createLocks(driver, options);
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}

export async function holdRedisHoldfast(address: string, ttl: number): Promise<HoldKey> {
  const { acquire } = await openRedisHoldfast(address, { ttl });
  return acquire;
}

const TTL_MS = 30_000;
const ACQUIRE_SCRIPT =
  "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0";
const RELEASE_SCRIPT = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/** What most programs write by hand: SET NX PX, and a script that compares and deletes. It does not wait. */
export async function openRedisByHand(address: string): Promise<LockImplementation<[string, string]>> {
  const client = await createIoredis(address);
  const release = (await client.script("LOAD", RELEASE_SCRIPT)) as string;
  return {
    async acquire(key) {
      const value = randomUUID();
      if ((await client.set(key, value, "PX", TTL_MS, "NX")) === null) throw new Error(`${key} was taken`);
      return [key, value];
    },
    release: ([key, value]) => client.evalsha(release, 1, key, value),
    close: async () => client.disconnect(),
  };
}

/** For a caller without competition: it does not wait. */
export async function openRedisBaseline(
  address: string,
  options: ClientOptions = {},
): Promise<LockImplementation<[string, string]>> {
  const client = await createIoredis(address, options);
  for (const script of [ACQUIRE_SCRIPT, RELEASE_SCRIPT]) await client.script("LOAD", script);
  const [acquire, release] = [ACQUIRE_SCRIPT, RELEASE_SCRIPT].map((script) =>
    createHash("sha1").update(script).digest("hex"),
  );
  return {
    async acquire(key) {
      const value = randomUUID();
      const token = await client.evalsha(acquire as string, 2, key, "token", value, TTL_MS);
      if (token === 0) throw new Error("the floor's key was taken");
      return [key, value];
    },
    release: ([key, value]) => client.evalsha(release as string, 1, key, value),
    close: async () => client.disconnect(),
  };
}
