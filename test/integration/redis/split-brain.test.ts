/** Two masters at once: the old one was suspended, replaced, and continues without knowing it. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks, DriverError } from "../../../src/index.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { redisUnavailableReason, startRedis } from "../../support/stores/redis.ts";
import { demoteMaster, promoteReplica, waitForReplicas } from "../../support/stores/redis-replication.ts";
import { until } from "../../support/until.ts";

const TTL_MS = 3_000;
const replicas = { minAcks: 1, timeoutMs: 300 };

let oldMaster: RedisServer;
let newMaster: RedisServer;
let thirdServer: RedisServer;
let admin: Readonly<Record<"old" | "next" | "third", Redis>>;
let prefix: string;
let clients: Locks[];

const openConnection = (server: RedisServer): Redis => new Redis(server.port, "127.0.0.1");
const openClient = (server: RedisServer, options: RedisOptions): Locks => {
  const driver = redis(() => openConnection(server), { prefix, warn: () => undefined, ...options });
  const locks = createLocks(driver, { ttl: TTL_MS, handoffs: 1 });
  clients.push(locks);
  return locks;
};

/** The old master is suspended, replaced, and resumed: both accept writes from now on. */
async function splitBrain(): Promise<void> {
  await waitForReplicas(admin.old, 2);
  oldMaster.signal("SIGSTOP");
  await promoteReplica(admin.next);
  await demoteMaster(admin.third, newMaster);
  await waitForReplicas(admin.next, 1);
  oldMaster.signal("SIGCONT");
  await until(async () => /connected_slaves:0/.test(await admin.old.info("replication")), {
    within: 5_000,
    what: "the old master to be alone",
  });
}

describe.skipIf(redisUnavailableReason() !== null)("an old master that continues beside the new one", () => {
  beforeAll(async () => {
    [oldMaster, newMaster, thirdServer] = [await startRedis(), await startRedis(), await startRedis()];
    admin = { old: openConnection(oldMaster), next: openConnection(newMaster), third: openConnection(thirdServer) };
  }, 180_000);
  afterAll(async () => {
    for (const redis of Object.values(admin)) redis.disconnect();
    for (const redisServer of [oldMaster, newMaster, thirdServer]) await redisServer.stop();
  });
  beforeEach(async () => {
    [prefix, clients] = [randomUUID(), []];
    await promoteReplica(admin.old);
    await demoteMaster(admin.next, oldMaster);
    await demoteMaster(admin.third, oldMaster);
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
  });

  test("grants and renews nothing where replicas are waited for: no lock has two holders", {
    timeout: 60_000,
  }, async () => {
    const [holder, left, moved] = [
      openClient(oldMaster, { replicas }),
      openClient(oldMaster, { replicas }),
      openClient(newMaster, { replicas }),
    ];
    const lock = await holder.acquire("held");
    await left.using("other", () => undefined);
    await splitBrain();
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
    for (const lock of [taken, free, tried]) expect(await lock?.release()).toBe(true);
  });

  test("refuses writes where min-replicas-to-write is set, and this is reported", { timeout: 60_000 }, async () => {
    await admin.old.config("SET", "min-replicas-to-write", "1");
    try {
      const [left, moved] = [openClient(oldMaster, {}), openClient(newMaster, {})];
      await left.using("other", () => undefined);
      await splitBrain();
      await expect(left.tryAcquire("key")).rejects.toMatchObject({
        code: "DRIVER_FAILED",
        message: expect.stringMatching(/NOREPLICAS/),
      });
      await moved.using("key", () => undefined);
    } finally {
      await admin.old.config("SET", "min-replicas-to-write", "0");
    }
  });

  test("grants the new master's locks without either, even with guardDataLoss, as the guide says", {
    timeout: 60_000,
  }, async () => {
    const guard = { guardDataLoss: { maxTtlMs: TTL_MS } };
    const [left, moved] = [openClient(oldMaster, guard), openClient(newMaster, guard)];
    await left.using("other", () => undefined); // after the grace period that a new prefix begins with
    await splitBrain();
    const [one, two] = await Promise.all([left.acquire("key", { wait: "30s" }), moved.acquire("key", { wait: "30s" })]);
    expect([one.signal.aborted, two.signal.aborted]).toEqual([false, false]);
    await Promise.all([one.release(), two.release()]);
  });
});
