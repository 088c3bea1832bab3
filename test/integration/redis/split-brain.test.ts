/** Two masters at once: the old one was suspended, replaced, and continues without knowing it. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks, StoreError } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { redisUnavailableReason, startRedis } from "../../support/stores/redis.ts";
import { demoteMaster, promoteReplica, waitForReplicas } from "../../support/stores/redis-replication.ts";

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
  const locks = createLocks(driver, { ttl: TTL_MS, order: "strict" });
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
    const [holder, oldClient, newClient] = [
      openClient(oldMaster, { replicas }),
      openClient(oldMaster, { replicas }),
      openClient(newMaster, { replicas }),
    ];
    const lock = await holder.acquire("held");
    await oldClient.using("other", () => undefined);
    await splitBrain();
    const waitingLock = newClient.acquire("held", { wait: "30s" });
    const waiting = oldClient.acquire("free", { wait: "2s" }).catch((error: unknown) => error);
    await expect(oldClient.tryAcquire("tried")).rejects.toBeInstanceOf(StoreError);
    const freeLock = await newClient.acquire("free");
    const triedLock = await newClient.tryAcquire("tried");
    expect(triedLock).not.toBeNull();
    const takenLock = await waitingLock;
    expect(lock.remainingMs, "the old holder's own clock ended it before").toBe(0);
    expect(() => lock.throwIfLost()).toThrow();
    expect(await waiting).toBeInstanceOf(Error);
    for (const lock of [takenLock, freeLock, triedLock]) expect(await lock?.release()).toBe(true);
  });

  test("refuses writes where min-replicas-to-write is set, and this is reported", { timeout: 60_000 }, async () => {
    await admin.old.config("SET", "min-replicas-to-write", "1");
    try {
      const [oldClient, newClient] = [openClient(oldMaster, {}), openClient(newMaster, {})];
      await oldClient.using("other", () => undefined);
      await splitBrain();
      await expect(oldClient.tryAcquire("key")).rejects.toMatchObject({
        code: "LOCK_STORE_FAILED",
        message: expect.stringMatching(/NOREPLICAS/),
      });
      await newClient.using("key", () => undefined);
    } finally {
      await admin.old.config("SET", "min-replicas-to-write", "0");
    }
  });

  test("grants the new master's locks without either, even with guardDataLoss, as the guide says", {
    timeout: 60_000,
  }, async () => {
    const guardOptions = { guardDataLoss: { maxTtlMs: TTL_MS } };
    const [oldClient, newClient] = [openClient(oldMaster, guardOptions), openClient(newMaster, guardOptions)];
    await oldClient.using("other", () => undefined); // after the grace period that a new prefix begins with
    await splitBrain();
    const [oldLock, newLock] = await Promise.all([
      oldClient.acquire("key", { wait: "30s" }),
      newClient.acquire("key", { wait: "30s" }),
    ]);
    expect([oldLock.signal.aborted, newLock.signal.aborted]).toEqual([false, false]);
    await Promise.all([oldLock.release(), newLock.release()]);
  });
});
