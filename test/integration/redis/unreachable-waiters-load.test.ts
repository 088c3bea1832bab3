/**
 * Mutexes and claims over several keys under load, while all inboxes are cut repeatedly, or the server is restarted with
 * its data: no two holders overlap, in Redis or by the clients' own view, and tokens rise.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";

const KEYS = ["a", "b", "c"] as const;
const LOAD_MS = process.env.HOLDFAST_LONG === "1" ? 60_000 : 5_000;
const CLIENTS = 4;
const CALLERS_PER_CLIENT = 3;

interface LoadResult {
  /** Faults found in Redis, and pairs of clients that both held one key. */
  readonly faults: string[];
  readonly grants: number;
}

/** Callers of several clients that acquire one key or all, while `fault` happens repeatedly. */
async function runUnderLoad(
  port: number,
  fault: (admin: Redis) => Promise<unknown>,
  everyMs: number,
): Promise<LoadResult> {
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
  const violations: string[] = [];
  const holders = new Map<string, Set<Lock>>(KEYS.map((key) => [key, new Set()]));
  const register = new Map<string, bigint>();
  const controller = new AbortController();
  let grants = 0;
  const enter = (lock: Lock, keys: readonly string[]): void => {
    for (const key of keys) {
      for (const otherLock of holders.get(key) as Set<Lock>) {
        if (isBelievedHeld(otherLock) && isBelievedHeld(lock))
          violations.push(`"${key}" is held with ${otherLock.token} and ${lock.token}`);
      }
      holders.get(key)?.add(lock);
      if (!isBelievedHeld(lock)) continue;
      if (lock.token <= (register.get(key) ?? 0n))
        violations.push(`"${key}": token ${lock.token} after ${register.get(key)}`);
      register.set(key, lock.token);
    }
  };
  const runCaller = async (locks: Locks, seed: number): Promise<void> => {
    const random = seededRandom(seed);
    while (!controller.signal.aborted) {
      const chosenKeys = KEYS.filter(() => random.chance(0.6));
      const keys = chosenKeys.length > 1 && random.chance(0.5) ? chosenKeys : [random.pick(KEYS)];
      const target = keys.length > 1 ? locks.all(...keys) : locks.mutex(keys[0] as string);
      const lock = await target.acquire({ wait: "10s", signal: controller.signal }).catch(() => null);
      if (lock === null) continue;
      grants++;
      enter(lock, keys);
      await delay(random.int(4));
      for (const key of keys) holders.get(key)?.delete(lock);
      await lock.release().catch(() => undefined);
    }
  };
  const callers = clients.flatMap((locks, index) =>
    Array.from({ length: CALLERS_PER_CLIENT }, (_, callerIndex) =>
      runCaller(locks, index * CALLERS_PER_CLIENT + callerIndex + 1),
    ),
  );
  const end = performance.now() + LOAD_MS;
  while (performance.now() < end) {
    await fault(admin);
    const pauseEnd = performance.now() + everyMs;
    while (performance.now() < pauseEnd) {
      violations.push(...(await findRedisViolations(admin, prefix)));
      await delay(5);
    }
  }
  controller.abort();
  await Promise.all(callers);
  for (const locks of clients) await locks.close();
  violations.push(...(await findRedisViolations(admin, prefix)));
  admin.disconnect();
  return { faults: [...new Set(violations)], grants };
}

function isBelievedHeld(lock: Lock): boolean {
  try {
    lock.throwIfLost();
    return true;
  } catch {
    return false;
  }
}

withRedis((server) => {
  test("no two holders overlap and tokens rise while all inboxes are cut repeatedly", {
    timeout: 3 * LOAD_MS + 20_000,
  }, async () => {
    const loadResult = await runUnderLoad(server().port, (admin) => admin.call("CLIENT", "KILL", "TYPE", "pubsub"), 60);
    expect(loadResult.faults).toEqual([]);
    expect(loadResult.grants).toBeGreaterThan(50);
  });
});

withRedis(
  (server) => {
    test("no two holders overlap and tokens rise while the server is restarted repeatedly, with its data kept", {
      timeout: 3 * LOAD_MS + 20_000,
    }, async () => {
      const loadResult = await runUnderLoad(server().port, () => server().restart(), 600);
      expect(loadResult.faults).toEqual([]);
      expect(loadResult.grants).toBeGreaterThan(20);
    });
  },
  ["--appendonly", "yes", "--appendfsync", "always"],
);
