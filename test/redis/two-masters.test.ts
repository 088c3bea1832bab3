/** Two masters for a while: one that was suspended, has been replaced meanwhile, and goes on without knowing it. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RedisOptions } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Locks } from "../../src/index.ts";
import { createLocks, DriverError } from "../../src/index.ts";
import type { RedisServer } from "../support/services/redis.ts";
import { startRedis, whyNoRedis } from "../support/services/redis.ts";
import { demote, promote, replicated } from "../support/services/redis-pair.ts";
import { until } from "../support/wait-for.ts";

const TTL_MS = 3_000;
const replicas = { atLeast: 1, withinMs: 300 };

let old: RedisServer;
let next: RedisServer;
let third: RedisServer;
let admin: Readonly<Record<"old" | "next" | "third", Redis>>;
let prefix: string;
let clients: Locks[];

const connection = (server: RedisServer): Redis => new Redis(server.port, "127.0.0.1");
const client = (server: RedisServer, options: RedisOptions): Locks => {
  const driver = redis(() => connection(server), { prefix, warn: () => undefined, ...options });
  const locks = createLocks(driver, { ttl: TTL_MS, handoffs: 1 });
  clients.push(locks);
  return locks;
};

/** The old master is suspended, replaced, and goes on: both take writes from now on. */
async function split(): Promise<void> {
  await replicated(admin.old, 2);
  old.signal("SIGSTOP");
  await promote(admin.next);
  await demote(admin.third, next);
  await replicated(admin.next, 1);
  old.signal("SIGCONT");
  await until(async () => /connected_slaves:0/.test(await admin.old.info("replication")), {
    within: 5_000,
    what: "the old master to be alone",
  });
}

describe.skipIf(whyNoRedis() !== null)("an old master that goes on beside the new one", () => {
  beforeAll(async () => {
    [old, next, third] = [await startRedis(), await startRedis(), await startRedis()];
    admin = { old: connection(old), next: connection(next), third: connection(third) };
  }, 180_000);
  afterAll(async () => {
    for (const one of Object.values(admin)) one.disconnect();
    for (const one of [old, next, third]) await one.stop();
  });
  beforeEach(async () => {
    [prefix, clients] = [randomUUID(), []];
    await promote(admin.old);
    await demote(admin.next, old);
    await demote(admin.third, old);
  });
  afterEach(async () => {
    for (const one of clients) await one.close();
  });

  test("grants nothing where replicas are waited for, and renews nothing: nobody holds a lock twice", {
    timeout: 60_000,
  }, async () => {
    const [holder, left, moved] = [client(old, { replicas }), client(old, { replicas }), client(next, { replicas })];
    const lock = await holder.acquire("held");
    await left.using("other", () => undefined);
    await split();
    const rival = moved.acquire("held", { wait: "30s" });
    const waiting = left.acquire("free", { wait: "2s" }).catch((error: unknown) => error);
    await expect(left.tryAcquire("tried")).rejects.toBeInstanceOf(DriverError);
    const free = await moved.acquire("free");
    const tried = await moved.tryAcquire("tried");
    expect(tried).not.toBeNull();
    const taken = await rival;
    expect(lock.remainingMs, "the old holder's own clock ended it before").toBe(0);
    expect(() => lock.throwIfLost()).toThrow();
    expect(await waiting).toBeInstanceOf(Error);
    for (const one of [taken, free, tried]) expect(await one?.release()).toBe(true);
  });

  test("refuses writes where min-replicas-to-write is set, which is told as such", { timeout: 60_000 }, async () => {
    await admin.old.config("SET", "min-replicas-to-write", "1");
    try {
      const [left, moved] = [client(old, {}), client(next, {})];
      await left.using("other", () => undefined);
      await split();
      await expect(left.tryAcquire("key")).rejects.toMatchObject({
        code: "DRIVER_FAILED",
        message: expect.stringMatching(/NOREPLICAS/),
      });
      await moved.using("key", () => undefined);
    } finally {
      await admin.old.config("SET", "min-replicas-to-write", "0");
    }
  });

  test("grants what the new one grants without either, with guardDataLoss too: the guide says so", {
    timeout: 60_000,
  }, async () => {
    const guard = { guardDataLoss: { longestTtlMs: TTL_MS } };
    const [left, moved] = [client(old, guard), client(next, guard)];
    await left.using("other", () => undefined); // behind the grace period that a new prefix begins with
    await split();
    const [one, two] = await Promise.all([left.acquire("key", { wait: "30s" }), moved.acquire("key", { wait: "30s" })]);
    one.throwIfLost();
    two.throwIfLost();
    await Promise.all([one.release(), two.release()]);
  });
});
