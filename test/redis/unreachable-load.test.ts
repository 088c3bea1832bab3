/**
 * Mutexes and claims over several keys under load, while all inboxes are cut again and again, or the server is restarted with
 * its data: nobody holds beside anybody, in Redis as in what the clients believe, and tokens rise.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Lock, Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import { redisViolations } from "../support/inspect-redis.ts";
import { withRedis } from "../support/redis-store.ts";
import { seededRandom } from "../support/seeded-random.ts";

const KEYS = ["a", "b", "c"] as const;
const LOAD_MS = process.env.HOLDFAST_LONG === "1" ? 60_000 : 5_000;
const CLIENTS = 4;
const CALLERS = 3;

interface Found {
  /** What was wrong in Redis, and pairs that both believed to hold one key. */
  readonly wrong: string[];
  readonly grants: number;
}

/** Callers of several clients who take one key or all, while `fault` happens again and again. */
async function underLoad(port: number, fault: (admin: Redis) => Promise<unknown>, everyMs: number): Promise<Found> {
  const prefix = randomUUID();
  const admin = new Redis(port, "127.0.0.1", { retryStrategy: () => 20, maxRetriesPerRequest: null });
  admin.on("error", () => undefined);
  const clients = Array.from({ length: CLIENTS }, () =>
    createLocks(
      redis(() => new Redis(port, "127.0.0.1", { retryStrategy: () => 20 }), { prefix, warn: () => undefined }),
      { ttl: "3s" },
    ),
  );
  for (const locks of clients) locks.on("storeDown", () => undefined);
  const wrong: string[] = [];
  const inside = new Map<string, Set<Lock>>(KEYS.map((key) => [key, new Set()]));
  const register = new Map<string, bigint>();
  const ending = new AbortController();
  let grants = 0;
  const enter = (lock: Lock, keys: readonly string[]): void => {
    for (const key of keys) {
      for (const other of inside.get(key) as Set<Lock>) {
        if (believes(other) && believes(lock)) wrong.push(`"${key}" is held with ${other.token} and ${lock.token}`);
      }
      inside.get(key)?.add(lock);
      if (!believes(lock)) continue;
      if (lock.token <= (register.get(key) ?? 0n))
        wrong.push(`"${key}": token ${lock.token} after ${register.get(key)}`);
      register.set(key, lock.token);
    }
  };
  const work = async (locks: Locks, seed: number): Promise<void> => {
    const random = seededRandom(seed);
    while (!ending.signal.aborted) {
      const several = KEYS.filter(() => random.chance(0.6));
      const keys = several.length > 1 && random.chance(0.5) ? several : [random.pick(KEYS)];
      const target = keys.length > 1 ? locks.all(...keys) : locks.mutex(keys[0] as string);
      const lock = await target.acquire({ wait: "10s", signal: ending.signal }).catch(() => null);
      if (lock === null) continue;
      grants++;
      enter(lock, keys);
      await delay(random.int(4));
      for (const key of keys) inside.get(key)?.delete(lock);
      await lock.release().catch(() => undefined);
    }
  };
  const all = clients.flatMap((locks, at) =>
    Array.from({ length: CALLERS }, (_, of) => work(locks, at * CALLERS + of + 1)),
  );
  const end = performance.now() + LOAD_MS;
  while (performance.now() < end) {
    await fault(admin);
    const pauseEnd = performance.now() + everyMs;
    while (performance.now() < pauseEnd) {
      wrong.push(...(await redisViolations(admin, prefix)));
      await delay(5);
    }
  }
  ending.abort();
  await Promise.all(all);
  for (const locks of clients) await locks.close();
  wrong.push(...(await redisViolations(admin, prefix)));
  admin.disconnect();
  return { wrong: [...new Set(wrong)], grants };
}

function believes(lock: Lock): boolean {
  try {
    lock.throwIfLost();
    return true;
  } catch {
    return false;
  }
}

withRedis((server) => {
  test("all inboxes cut again and again", { timeout: 3 * LOAD_MS + 20_000 }, async () => {
    const found = await underLoad(server().port, (admin) => admin.call("CLIENT", "KILL", "TYPE", "pubsub"), 60);
    expect(found.wrong).toEqual([]);
    expect(found.grants).toBeGreaterThan(50);
  });
});

withRedis(
  (server) => {
    test("the server restarted again and again, its data kept", { timeout: 3 * LOAD_MS + 20_000 }, async () => {
      const found = await underLoad(server().port, () => server().restart(), 600);
      expect(found.wrong).toEqual([]);
      expect(found.grants).toBeGreaterThan(20);
    });
  },
  ["--appendonly", "yes", "--appendfsync", "always"],
);
