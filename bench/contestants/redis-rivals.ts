/**
 * The rivals on Redis, with their own delays between attempts, and as many attempts as it takes: with the usual number most
 * give up under contention.
 */

import { createClient } from "redis";
import { portOf } from "../harness/address.ts";
import { loadRival } from "../harness/rivals.ts";
import type { Contestant } from "../harness/workload.ts";
import { ioredis } from "./redis-ours.ts";

/** Keeps a key until the process ends, prolonging it as the rival does by itself. Settles when it is held. */
export type Keep = (key: string) => Promise<unknown>;

const TTL = 30_000;
const EVER = Number.MAX_SAFE_INTEGER;

interface Redlock4 {
  lock(key: string, ttl: number): Promise<{ unlock(): Promise<void> }>;
}

export async function openRedlock4(address: string): Promise<Contestant<{ unlock(): Promise<void> }>> {
  const client = await ioredis(address);
  const { default: Redlock } = await loadRival<{ default: new (clients: unknown[], options: object) => Redlock4 }>(
    "redlock",
  );
  const redlock = new Redlock([client], { retryCount: -1 });
  return {
    acquire: (key) => redlock.lock(key, TTL),
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
): Promise<Contestant<{ release(): Promise<unknown> }>> {
  const redlock = await madeRedlock5(name, address);
  return {
    acquire: (key) => redlock.acquire([key], TTL),
    release: (lock) => lock.release(),
    close: async () => undefined,
  };
}

export async function keeperRedlock5(name: string, address: string, ttl: number): Promise<Keep> {
  const redlock = await madeRedlock5(name, address);
  return (key) => untilHeld((held) => redlock.using([key], ttl, () => held()));
}

async function madeRedlock5(name: string, address: string): Promise<Redlock5> {
  const client = await ioredis(address);
  const { default: all } = await loadRival<{ default: Record<string, Redlock5Class> }>(name);
  const Redlock = (all.Redlock ?? all.default) as Redlock5Class;
  return new Redlock([client], { retryCount: -1 });
}

interface Mutex {
  acquire(): Promise<void>;
  release(): Promise<void>;
}

async function semaphores(address: string, options: object): Promise<(key: string) => Mutex> {
  const client = await ioredis(address);
  const { Mutex } = await loadRival<{ Mutex: new (client: unknown, key: string, options: object) => Mutex }>(
    "redis-semaphore",
  );
  return (key) => new Mutex(client, key, { acquireTimeout: Number.POSITIVE_INFINITY, ...options });
}

export async function openRedisSemaphore(address: string): Promise<Contestant<Mutex>> {
  const make = await semaphores(address, { lockTimeout: TTL });
  return {
    async acquire(key) {
      const mutex = make(key);
      await mutex.acquire();
      return mutex;
    },
    release: (mutex) => mutex.release(),
    close: async () => undefined,
  };
}

export async function keeperRedisSemaphore(address: string, ttl: number): Promise<Keep> {
  // otherwise a lock lost on a busy machine ends the process
  const make = await semaphores(address, { lockTimeout: ttl, onLockLost: () => undefined });
  return (key) => make(key).acquire();
}

interface VerrouLock {
  acquire(): Promise<boolean>;
  release(): Promise<void>;
}

export async function openVerrou(address: string): Promise<Contestant<VerrouLock>> {
  const connection = await ioredis(address);
  const { LockFactory } = await loadRival<{
    LockFactory: new (store: unknown) => { createLock(key: string, ttl: number): VerrouLock };
  }>("@verrou/core");
  const { redisStore } = await loadRival<{ redisStore(options: object): { factory(): unknown } }>(
    "@verrou/core/drivers/redis",
  );
  const factory = new LockFactory(redisStore({ connection }).factory());
  return {
    async acquire(key) {
      const lock = factory.createLock(key, TTL);
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

async function universal(address: string, ttl: number): Promise<(key: string) => UniversalLock> {
  const client = await ioredis(address);
  const { createLock, IoredisAdapter } = await loadRival<{
    createLock(options: object): UniversalLock;
    IoredisAdapter: new (client: unknown) => unknown;
  }>("redlock-universal");
  const adapter = new IoredisAdapter(client);
  return (key) => createLock({ adapter, key, ttl, retryAttempts: EVER });
}

export async function openUniversal(address: string): Promise<Contestant<[UniversalLock, unknown]>> {
  const make = await universal(address, TTL);
  const locks = new Map<string, UniversalLock>();
  return {
    async acquire(key) {
      let lock = locks.get(key);
      if (lock === undefined) {
        lock = make(key);
        locks.set(key, lock);
      }
      return [lock, await lock.acquire()];
    },
    release: ([lock, handle]) => lock.release(handle),
    close: async () => undefined,
  };
}

export async function keeperUniversal(address: string, ttl: number): Promise<Keep> {
  const make = await universal(address, ttl);
  return (key) => untilHeld((held) => make(key).using(() => held()));
}

type Release = () => Promise<void>;

/** Works with node-redis only. */
export async function openSimpleRedisMutex(address: string): Promise<Contestant<Release>> {
  const client = createClient({ url: `redis://127.0.0.1:${portOf(address)}` });
  await client.connect();
  const { lock } = await loadRival<{ lock(client: unknown, key: string): Promise<Release> }>("simple-redis-mutex");
  // its first calls would each open a subscriber
  await (await lock(client, "first"))();
  return { acquire: (key) => lock(client, key), release: (release) => release(), close: () => client.close() };
}

/** Settles when the body of a scope has begun, which then goes on for ever. */
function untilHeld(scope: (held: () => Promise<void>) => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    scope(() => {
      resolve();
      return new Promise(() => undefined);
    }).catch(reject);
  });
}
