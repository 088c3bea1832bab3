/** The option `replicas`: no lock is reported as held before a replica has it. */

import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { RedisClient, RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks, StoreError } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { startContention } from "../../support/contention-load.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { startRedisPair } from "../../support/stores/redis-replication.ts";

/** Where there is no replica, which is reported soon. */
const REPLICA_ACKS = { minAcks: 1, timeoutMs: 200 };
/** Where there is a replica, which a busy machine may delay. */
const PATIENT_ACKS = { minAcks: 1, timeoutMs: 4_000 };

let master: RedisServer;
let replica: RedisServer;
let fixture: RedisFixture;
let clients: Locks[];
const cleanups: (() => Promise<void>)[] = [];
beforeAll(async () => {
  [master, replica] = await startRedisPair();
}, 180_000);
afterAll(async () => {
  await replica.stop();
  await master.stop();
});
beforeEach(() => {
  fixture = createRedisFixture(master.port);
  clients = [];
});
afterEach(async () => {
  replica.signal("SIGCONT");
  for (const locks of clients) await locks.close();
  await fixture.close();
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

const openClient = (createRedis: () => RedisClient = ioredisClient, options: RedisOptions = {}): Locks => {
  const driver = redis(createRedis, { prefix: fixture.prefix, replicas: REPLICA_ACKS, ...options });
  const locks = createLocks(driver, { ttl: "10s", order: "strict" });
  clients.push(locks);
  return locks;
};
const ioredisClient = (): RedisClient => new Redis(master.port, "127.0.0.1");
const nodeRedisClient = (): RedisClient => createClient({ url: master.url });

const commandCount = async (command: string): Promise<number> =>
  Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await fixture.admin.info("commandstats"))?.[1] ?? 0);

describe.each([
  ["ioredis", ioredisClient],
  ["ioredis with a prefix of its own", () => new Redis(master.port, "127.0.0.1", { keyPrefix: "app:" })],
  ["node-redis", nodeRedisClient],
] as const)("a lock by %s", (_, createRedis) => {
  test("is granted when a replica has it; while the replica is stopped no grant is reported, and a call that does not wait fails with the reason", async () => {
    const [client, other] = [openClient(createRedis), openClient(createRedis)];
    await client.using("key", () => undefined);
    replica.signal("SIGSTOP");
    const error: unknown = await other.tryAcquire("key").catch((failure: unknown) => failure);
    expect(error).toBeInstanceOf(StoreError);
    expect(String((error as Error).cause)).toMatch(/0 of 1 replicas acknowledged within 200 ms/);
    // the claim with the unknown outcome was released
    await until(async () => (await other.list("key")).length === 0, { within: 5_000, what: "the end of the claim" });
    let isHeld = false;
    const waiting = client.acquire("key", { wait: "30s" }).then((lock) => {
      isHeld = true;
      return lock;
    });
    await until(async () => (await commandCount("wait")) > 4, { within: 10_000, what: "attempts" });
    expect(isHeld).toBe(false);
    replica.signal("SIGCONT");
    const lock = await waiting;
    expect(await lock.release()).toBe(true);
  });

  test("that is handed off waits for the replica as well, and keeps its turn until the replica is back", async () => {
    const [holder, next, last] = [openClient(createRedis), openClient(createRedis), openClient(createRedis)];
    const held = await holder.acquire("key");
    const order: string[] = [];
    const inTurn = async (locks: Locks, name: string): Promise<void> => {
      const lock = await locks.acquire("key", { wait: "60s" });
      order.push(name);
      await lock.release();
    };
    const waitForWaiters = (count: number): Promise<unknown> =>
      until(async () => (await holder.list("key")).length === count, { within: 5_000, what: "the line" });
    const second = inTurn(next, "next");
    await waitForWaiters(2);
    const third = inTurn(last, "last");
    await waitForWaiters(3);
    const before = await commandCount("wait");
    replica.signal("SIGSTOP");
    await held.release();
    await until(async () => (await commandCount("wait")) >= before + 2, {
      within: 10_000,
      what: "questions to replicas",
    });
    expect(order).toEqual([]);
    replica.signal("SIGCONT");
    await Promise.all([second, third]);
    expect(order).toEqual(["next", "last"]);
  });
});

test("a holder whose renewals no replica has is notified of the loss when its lease ends, and not before", async () => {
  const locks = openClient();
  const lock = await locks.acquire("key", { ttl: "3s" });
  replica.signal("SIGSTOP");
  // the rest of the lease since the last renewal that a replica has
  const end = performance.now() + lock.remainingMs;
  await until(() => lock.signal.aborted, { within: 8_000, what: "word of the loss" });
  expect(performance.now()).toBeGreaterThanOrEqual(end - 5);
});

test("a claim that waits for replicas delays no other call on the connection", async () => {
  const lockClient = await fixture.open(redis(ioredisClient, { prefix: fixture.prefix, replicas: PATIENT_ACKS }));
  replica.signal("SIGSTOP");
  const before = await commandCount("wait");
  let isTold = false;
  const held = lockClient.claim(makeClaim("key", { wait: false })).finally(() => {
    isTold = true;
  });
  held.catch(() => undefined);
  await until(async () => (await commandCount("wait")) > before, { within: 2_000, what: "the question to replicas" });
  expect((await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
  expect((await lockClient.claim(makeClaim("key", { wait: false }))).state, "what is not held needs no replica").toBe(
    "none",
  );
  expect(isTold, "all this while the question is under way").toBe(false);
  replica.signal("SIGCONT");
  expect((await held).state).toBe("held");
});

test("many claims made at once ask the replicas together", async () => {
  const lockClient = await fixture.open(redis(ioredisClient, { prefix: fixture.prefix, replicas: PATIENT_ACKS }));
  const claims = Array.from({ length: 500 }, (_, index) => makeClaim(`key ${index}`, { wait: false }));
  const before = await commandCount("wait");
  const answers = await Promise.all(claims.map((claim) => lockClient.claim(claim)));
  expect(answers.every((answer) => answer?.state === "held")).toBe(true);
  expect((await commandCount("wait")) - before).toBeLessThanOrEqual(10);
  expect((await lockClient.driver.renew(claims)).every((answer) => answer?.state === "held")).toBe(true);
  expect(await lockClient.driver.detach?.(claims.slice(0, 2))).toEqual([true, true]);
  await lockClient.driver.release(toReleases(...claims));
  await until(async () => (await fixture.keys()).every((key) => !/:m:/.test(key)), { within: 5_000, what: "no marks" });
});

test("a full store renews held claims", async () => {
  const lockClient = await fixture.open(redis(ioredisClient, { prefix: fixture.prefix, replicas: PATIENT_ACKS }));
  const held = makeClaim("key");
  await lockClient.claimHeld(held);
  await fixture.admin.config("SET", "maxmemory", "1");
  try {
    expect((await lockClient.renewOnce(held)).state).toBe("held");
  } finally {
    await fixture.admin.config("SET", "maxmemory", "0");
  }
});

test("the replicas of a server other than the one that granted do not count", async () => {
  const [other, its] = await startRedisPair();
  cleanups.push(
    () => its.stop(),
    () => other.stop(),
  );
  const redisClient = new Redis(master.port, "127.0.0.1");
  let times = 0;
  // the first is the inbox; the second, for replicas, is misdirected, as by Sentinels that have named another master
  const duplicate = (options: object): Redis =>
    new Redis({ ...options, host: "127.0.0.1", port: ++times === 2 ? other.port : master.port });
  const lockClient = await fixture.open(
    redis(() => Object.assign(redisClient, { duplicate }), { prefix: fixture.prefix, replicas: PATIENT_ACKS }),
  );
  const claim = makeClaim("key");
  await expect(lockClient.claim(claim)).rejects.toThrow("the commands and WAIT reached different servers");
  expect((await lockClient.renewOnce(claim)).state, "by a new connection, to the right server").toBe("held");
  await lockClient.driver.release(toReleases(claim));
  redisClient.disconnect();
});

test("an acknowledgement does not count after the connection broke: another server may have taken over", async () => {
  const lockClient = await fixture.open(redis(ioredisClient, { prefix: fixture.prefix, replicas: PATIENT_ACKS }));
  replica.signal("SIGSTOP");
  const claim = makeClaim("key");
  const before = await commandCount("wait");
  const granted = lockClient.claim(claim).catch((error: unknown) => error);
  await until(async () => (await commandCount("wait")) > before, { within: 5_000, what: "the question to replicas" });
  const clientList = String(await fixture.admin.call("CLIENT", "LIST"));
  // the connection for commands: the mark was its last
  const [, id] = /^id=(\d+) .* cmd=eval /m.exec(clientList) ?? [];
  await fixture.admin.call("CLIENT", "KILL", "ID", String(id));
  await until(() => lockClient.pushes.some((push) => push.id === null), { within: 5_000, what: "the connection" });
  replica.signal("SIGCONT");
  expect(String(await granted)).toContain("the connection changed");
  expect((await lockClient.renewOnce(claim)).state).toBe("held");
  await lockClient.driver.release(toReleases(claim));
});

test("a broken connection for replicas is replaced, under load", { timeout: 30_000 }, async () => {
  await using load = startContention([openClient(), openClient(nodeRedisClient)], "key", 3);
  await load.waitForProgress();
  for (let round = 0; round < 3; round++) {
    const clientList = String(await fixture.admin.call("CLIENT", "LIST"));
    const ids = [...clientList.matchAll(/^id=(\d+) .* cmd=(?:wait|del) /gm)].map((match) => match[1] as string);
    for (const id of ids) await fixture.admin.call("CLIENT", "KILL", "ID", id);
    await load.waitForProgress();
  }
  await load.waitUntilAllServed();
  expect(load.overlaps).toBe(0);
  expect(load.lostLocks).toBe(0);
});

test("doctor reports the number of replicas waited for; a user without the right is refused", async () => {
  const warnings: string[] = [];
  const awaiting = (minAcks: number): RedisOptions => ({
    prefix: fixture.prefix,
    replicas: { minAcks },
    warn: (text) => warnings.push(text),
  });
  const lockClient = await fixture.open(redis(ioredisClient, awaiting(1)));
  const diagnosis = await lockClient.driver.diagnose?.();
  expect(diagnosis).toContainEqual({ status: "ok", name: "role", message: "master, with 1 replica" });
  expect(diagnosis).toContainEqual({
    status: "ok",
    name: "failover",
    message: "grants and renewals wait for 1 of 1 replicas",
  });
  await fixture.open(redis(ioredisClient, awaiting(2)));
  expect(warnings).toContainEqual(expect.stringMatching(/master, with 1 replica; no lock is granted until 2/));
  await fixture.admin.call("ACL", "SETUSER", "impatient", "reset", "on", ">secret", "~*", "&*", "+@all", "-wait");
  const createImpatientRedis = (): Redis =>
    new Redis({ port: master.port, host: "127.0.0.1", username: "impatient", password: "secret" });
  const rejectedDriver = redis(createImpatientRedis, awaiting(1));
  await expect(rejectedDriver.open(NO_EVENTS)).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringMatching(/NOPERM.*grant \+wait$/),
  });
  await rejectedDriver.close();
});

test("the option is accepted in a url; a meaningless one is a TypeError that names it", async () => {
  const locks = await connect(`${master.url}?prefix=${fixture.prefix}&replicas=2`);
  await expect(locks.tryAcquire("key")).rejects.toMatchObject({
    code: "LOCK_STORE_FAILED",
    cause: { message: "redis: 1 of 2 replicas acknowledged within 1000 ms" },
  });
  await locks.close();
  await expect(connect(`${master.url}?replicas=many`)).rejects.toThrow(/^replicas.minAcks must be/);
  for (const [minAcks, timeoutMs] of [[0], [1.5], [101], ["1"], [1, 0], [1, 60_001], [1, 0.5]]) {
    const replicas = { minAcks, ...(timeoutMs !== undefined && { timeoutMs }) } as { minAcks: number };
    expect(() => redis(ioredisClient, { replicas })).toThrow(/^replicas\.(minAcks|timeoutMs) must be/);
  }
});
