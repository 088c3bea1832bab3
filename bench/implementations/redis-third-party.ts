/**
 * The rivals on Redis, with their own delays between attempts, and as many attempts as it takes: with the usual number
 * most give up under contention.
 */

import { createClient } from "redis";
import { parsePort } from "../harness/address.ts";
import type { HoldKey, LockImplementation } from "../harness/closed-loop.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { createIoredis } from "./redis-holdfast.ts";

const TTL_MS = 30_000;
const LONG_TTL_MS = Number.MAX_SAFE_INTEGER;

interface Redlock4 {
  lock(key: string, ttl: number): Promise<{ unlock(): Promise<void> }>;
}

export async function openRedlock4(address: string): Promise<LockImplementation<{ unlock(): Promise<void> }>> {
  const client = await createIoredis(address);
  const { default: Redlock } = await loadThirdParty<{ default: new (clients: unknown[], options: object) => Redlock4 }>(
    "redlock",
  );
  const redlock = new Redlock([client], { retryCount: -1 });
  return {
    acquire: (key) => redlock.lock(key, TTL_MS),
    release: (lock) => lock.unlock(),
    close: async () => client.disconnect(),
  };
}

interface Redlock5 {
  acquire(keys: string[], ttl: number): Promise<{ release(): Promise<unknown> }>;
  using(keys: string[], ttl: number, routine: () => Promise<void>): Promise<void>;
}

type Redlock5Class = new (clients: unknown[], options: object) => Redlock5;

/** redlock 5 (beta) and @sesamecare-oss/redlock, its successor. */
export async function openRedlock5(
  name: string,
  address: string,
): Promise<LockImplementation<{ release(): Promise<unknown> }>> {
  const redlock = await createRedlock5(name, address);
  return {
    acquire: (key) => redlock.acquire([key], TTL_MS),
    release: (lock) => lock.release(),
    close: async () => undefined,
  };
}

export async function holdRedlock5(name: string, address: string, ttl: number): Promise<HoldKey> {
  const redlock = await createRedlock5(name, address);
  return (key) => holdUntilClosed((held) => redlock.using([key], ttl, () => held()));
}

async function createRedlock5(name: string, address: string): Promise<Redlock5> {
  const client = await createIoredis(address);
  const { default: modules } = await loadThirdParty<{ default: Record<string, Redlock5Class> }>(name);
  const Redlock = (modules.Redlock ?? modules.default) as Redlock5Class;
  return new Redlock([client], { retryCount: -1 });
}

interface Mutex {
  acquire(): Promise<void>;
  release(): Promise<void>;
}

async function createSemaphores(address: string, options: object): Promise<(key: string) => Mutex> {
  const client = await createIoredis(address);
  const { Mutex } = await loadThirdParty<{ Mutex: new (client: unknown, key: string, options: object) => Mutex }>(
    "redis-semaphore",
  );
  return (key) => new Mutex(client, key, { acquireTimeout: Number.POSITIVE_INFINITY, ...options });
}

export async function openRedisSemaphore(address: string): Promise<LockImplementation<Mutex>> {
  const createLock = await createSemaphores(address, { lockTimeout: TTL_MS });
  return {
    async acquire(key) {
      const mutex = createLock(key);
      await mutex.acquire();
      return mutex;
    },
    release: (mutex) => mutex.release(),
    close: async () => undefined,
  };
}

export async function holdRedisSemaphore(address: string, ttl: number): Promise<HoldKey> {
  // otherwise a lock lost on a busy machine ends the process
  const createLock = await createSemaphores(address, { lockTimeout: ttl, onLockLost: () => undefined });
  return (key) => createLock(key).acquire();
}

interface VerrouLock {
  acquire(): Promise<boolean>;
  release(): Promise<void>;
}

export async function openVerrou(address: string): Promise<LockImplementation<VerrouLock>> {
  const connection = await createIoredis(address);
  const { LockFactory } = await loadThirdParty<{
    LockFactory: new (store: unknown) => { createLock(key: string, ttl: number): VerrouLock };
  }>("@verrou/core");
  const { redisStore } = await loadThirdParty<{ redisStore(options: object): { factory(): unknown } }>(
    "@verrou/core/drivers/redis",
  );
  const factory = new LockFactory(redisStore({ connection }).factory());
  return {
    async acquire(key) {
      const lock = factory.createLock(key, TTL_MS);
      await lock.acquire();
      return lock;
    },
    release: (lock) => lock.release(),
    close: async () => connection.disconnect(),
  };
}

interface UniversalLock {
  acquire(): Promise<unknown>;
  release(handle: unknown): Promise<unknown>;
  using(routine: () => Promise<void>): Promise<void>;
}

async function createUniversalLock(address: string, ttl: number): Promise<(key: string) => UniversalLock> {
  const client = await createIoredis(address);
  const { createLock, IoredisAdapter } = await loadThirdParty<{
    createLock(options: object): UniversalLock;
    IoredisAdapter: new (client: unknown) => unknown;
  }>("redlock-universal");
  const adapter = new IoredisAdapter(client);
  return (key) => createLock({ adapter, key, ttl, retryAttempts: LONG_TTL_MS });
}

export async function openUniversal(address: string): Promise<LockImplementation<[UniversalLock, unknown]>> {
  const createLock = await createUniversalLock(address, TTL_MS);
  const locks = new Map<string, UniversalLock>();
  return {
    async acquire(key) {
      let lock = locks.get(key);
      if (lock === undefined) {
        lock = createLock(key);
        locks.set(key, lock);
      }
      return [lock, await lock.acquire()];
    },
    release: ([lock, handle]) => lock.release(handle),
    close: async () => undefined,
  };
}

export async function holdUniversal(address: string, ttl: number): Promise<HoldKey> {
  const createLock = await createUniversalLock(address, ttl);
  return (key) => holdUntilClosed((held) => createLock(key).using(() => held()));
}

type Release = () => Promise<void>;

/** Works with node-redis only. */
export async function openSimpleRedisMutex(address: string): Promise<LockImplementation<Release>> {
  const client = createClient({ url: `redis://127.0.0.1:${parsePort(address)}` });
  await client.connect();
  const { lock } = await loadThirdParty<{ lock(client: unknown, key: string): Promise<Release> }>("simple-redis-mutex");
  // its first calls would each open a subscriber
  await (await lock(client, "first"))();
  return { acquire: (key) => lock(client, key), release: (release) => release(), close: () => client.close() };
}

/** Settles when the body of a scope has begun, which then goes on for ever. */
function holdUntilClosed(scope: (held: () => Promise<void>) => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    scope(() => {
      resolve();
      return new Promise(() => undefined);
    }).catch(reject);
  });
}
