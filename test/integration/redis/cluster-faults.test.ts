import { randomUUID } from "node:crypto";
import { inspect } from "node:util";
import type { Redis } from "ioredis";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { RedisClient, RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toHashSlot } from "../../../src/drivers/redis/hash-slot.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Duration, Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import type { Answer, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { startContention } from "../../support/contention-load.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { withHeldTokens } from "../../support/held-tokens.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisCluster } from "../../support/stores/redis-cluster.ts";
import { startRedisCluster } from "../../support/stores/redis-cluster.ts";
import { markLongInUse } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";
import { waitForReplicas } from "../../support/stores/redis-replication.ts";

const MASTERS = 3;
let cluster: RedisCluster;
let prefix: string;
let cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  cluster = await startRedisCluster(MASTERS, true);
}, 180_000);
afterAll(() => cluster.stop());
beforeEach(() => {
  prefix = randomUUID();
});
afterEach(async () => {
  for (const cleanup of cleanups) await cleanup();
  cleanups = [];
});

const ioredisCluster = (): Cluster =>
  new Cluster(
    cluster.ports.map((port) => ({ host: "127.0.0.1", port })),
    { clusterRetryStrategy: () => 50 },
  );
const nodeRedisCluster = (): RedisClient =>
  createCluster({ rootNodes: cluster.ports.map((port) => ({ url: `redis://127.0.0.1:${port}` })) });
const openLocks = (
  createRedis: () => RedisClient = ioredisCluster,
  options: RedisOptions = {},
  ttl: Duration = "10s",
): Locks => {
  const locks = createLocks(redis(createRedis, { prefix, commandTimeoutMs: 2_000, ...options }), {
    order: "strict",
    ttl,
  });
  cleanups.push(() => locks.close());
  return locks;
};
const keySlot = (key: string): number => toHashSlot(`${prefix}:3:{${toBucket(key)}}:n`);

const sumStatistic = async (name: string): Promise<number> => {
  let sum = 0;
  for (const redis of cluster.admin.slice(0, MASTERS)) {
    sum += Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(await redis.info("commandstats"))?.[1] ?? 0);
  }
  return sum;
};

describe("a Cluster", () => {
  test("a connection that breaks at a redirection to a slot that is being moved does not end the process", async () => {
    let client: Cluster | null = null;
    const driver = redis(
      () => {
        client = ioredisCluster();
        return client;
      },
      { prefix },
    );
    await driver.open(NO_EVENTS);
    cleanups.push(() => driver.close());
    const node = (client as Cluster | null)?.nodes("master")[0] as Redis;
    node.disconnect();
    // as the library calls it: this suite fails on a rejection that is not handled
    const answered = node.asking();
    await until(() => inspect(answered).includes("<rejected>"), { within: 5_000, what: "the failure" });
  });

  test("renewals are one command a bucket, however many claims there are", async () => {
    const driver = redis(ioredisCluster, { prefix });
    await driver.open(NO_EVENTS);
    cleanups.push(() => driver.close());
    const claims = Array.from({ length: 2_000 }, (_, index) => makeClaim(`key ${index}`, { wait: false }));
    const answers = await Promise.all(claims.map((claim) => driver.claim(claim)));
    expect(answers.every(({ state }) => state === "held")).toBe(true);
    for (const redis of cluster.admin) await redis.config("RESETSTAT");
    const renewals = await driver.renew(claims);
    expect(renewals.map((answer) => answer?.state === "held" && answer.token)).toEqual(
      answers.map((answer) => answer?.state === "held" && answer.token),
    );
    expect(await sumStatistic("evalsha")).toBeLessThanOrEqual(256);
    expect((await driver.release(toReleases(...claims))).every(Boolean)).toBe(true);
  });

  test("is reached by url; used as a single server it is refused with that reason", async () => {
    const addresses = cluster.ports.map((port) => `127.0.0.1:${port}`);
    const locks = await connect(`redis+cluster://${addresses.join(",")}?prefix=${prefix}`);
    expect(await locks.using("key", () => 42)).toBe(42);
    expect(await locks.using("another", () => 43)).toBe(43);
    await expect(locks.all("key", "another").using(async () => (await locks.list("")).length)).resolves.toBe(2);
    await locks.close();
    await expect(connect(`redis://${addresses[1]}`)).rejects.toThrow(
      /the server is of another kind \((?:MOVED|CROSSSLOT)\)/,
    );
  });

  test("a bucket with a failing node does not fail the calls of the others", async () => {
    const driver = redis(ioredisCluster, { prefix, commandTimeoutMs: 1_500 });
    await driver.open(NO_EVENTS);
    cleanups.push(() => driver.close());
    const slowClaim = makeClaim("0", { wait: false });
    let index = 1;
    const home = await cluster.masterOf(keySlot("0"));
    while ((await cluster.masterOf(keySlot(String(index)))) === home) index++;
    const quickClaim = makeClaim(String(index), { wait: false });
    for (const claim of [slowClaim, quickClaim]) expect((await driver.claim(claim)).state).toBe("held");
    expect(driver.shardOf?.(slowClaim)).not.toBe(driver.shardOf?.(quickClaim));
    await cluster.admin[home]?.call("CLIENT", "PAUSE", "5000", "ALL");
    // as the core does: each bucket in its own call
    const [slowRenewal, other] = [driver.renew([slowClaim]), driver.renew([quickClaim])];
    expect(await Promise.race([slowRenewal.catch(() => "slow"), other])).toMatchObject([{ state: "held" }]);
    await expect(slowRenewal).rejects.toThrow(/1500 ms/);
    const answers = await driver.renew([slowClaim, quickClaim]);
    expect(answers.map((answer) => answer?.state)).toEqual([undefined, "held"]);
    await until(() => driver.release(toReleases(slowClaim, quickClaim)).catch(() => null), {
      within: 12_000,
      what: "the release",
    });
  });

  test("a hand-off is pushed on the bucket's own channel only", async () => {
    // so long that no waiter asks by itself
    const [client, other] = [openLocks(ioredisCluster, {}, "120s"), openLocks(ioredisCluster, {}, "120s")];
    await using held = await client.acquire("key");
    const next = other.acquire("key");
    await until(async () => (await client.list("key")).length === 2, { within: 5_000, what: "the waiter" });
    for (const node of cluster.admin) await node.config("RESETSTAT");
    await held.release();
    const lock = await next;
    expect(await sumStatistic("spublish"), "the probe of the subscriber and the grant").toBe(2);
    expect(await sumStatistic("publish")).toBe(0);
    // the grant was pushed: its holder asked nothing (list: 256 buckets, none since)
    expect(await sumStatistic("evalsha")).toBe(1);
    await lock.release();
  });

  test.each([
    ["after a break of its connections", true],
    ["without a break", false],
  ])("a process releases again what a node has brought back, %s", async (_, hasBreak) => {
    const [one, other] = [ioredisCluster, ioredisCluster].map((create) => createLocks(redis(create, { prefix }))) as [
      Locks,
      Locks,
    ];
    cleanups.push(
      () => one.close(),
      () => other.close(),
    );
    const node = cluster.admin[await cluster.masterOf(keySlot("key"))] as Redis;
    const lock = await one.acquire("key");
    await other.using("other", () => undefined);
    const hash = `${prefix}:3:{${toBucket("key")}}:h`;
    const [dump, ttl] = [await node.dumpBuffer(hash), await node.pttl(hash)];
    await lock.release();
    await node.restore(hash, ttl, dump as Buffer, "REPLACE");
    if (hasBreak)
      for (const admin of cluster.admin) await admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    const next = await other.acquire("key", { wait: "10s" });
    await next.release();
    expect(await node.hexists(hash, "k:key")).toBe(0);
  });

  test("while a slot is half moved no lock is granted there, and nothing is lost", async () => {
    const createRedis = (): Cluster =>
      new Cluster([{ host: "127.0.0.1", port: cluster.ports[0] as number }], { maxRedirections: 2 });
    const driver = redis(createRedis, { prefix });
    await driver.open(NO_EVENTS);
    cleanups.push(() => driver.close());
    const [first, second] = [makeClaim("half-way"), makeClaim("half-way", { wait: false })];
    expect((await driver.claim(first)).state).toBe("held");
    const slot = keySlot("half-way");
    let attemptCount = 0;
    await cluster.move(slot, ((await cluster.masterOf(slot)) + 1) % MASTERS, async () => {
      attemptCount++;
      const answer = await driver.claim(makeClaim("half-way", { wait: false })).catch(() => null);
      expect(answer?.state, `try ${attemptCount}`).not.toBe("held");
    });
    expect(attemptCount).toBeGreaterThan(2);
    expect((await driver.claim(second)).state).toBe("none");
    expect((await driver.renew([first]))[0]?.state).toBe("held");
    expect(await driver.release(toReleases(first))).toEqual([true]);
  });

  test("while a slot moves with its keys under load no two holders overlap, and every waiter is granted", {
    timeout: 90_000,
  }, async () => {
    const key = "moving";
    const slot = keySlot(key);
    await using load = startContention([openLocks(), openLocks(nodeRedisCluster), openLocks()], key, 4);
    const home = await cluster.masterOf(slot);
    for (let round = 0; round < 4; round++) {
      await load.waitForProgress();
      await cluster.move(slot, (home + round + 1) % MASTERS, () => new Promise((resolve) => setTimeout(resolve, 30)));
    }
    await load.waitForProgress();
    await load.waitUntilAllServed();
    expect(load.overlaps).toBe(0);
  });

  test("when a replica takes over under load no two holders overlap, and every waiter is granted", {
    timeout: 90_000,
  }, async () => {
    const key = "taken over";
    const master = await cluster.masterOf(keySlot(key));
    await using load = startContention([openLocks(), openLocks(nodeRedisCluster), openLocks(nodeRedisCluster)], key, 4);
    await load.waitForProgress();
    await cluster.failOver(master);
    await load.waitForProgress();
    await load.waitUntilAllServed();
    expect(load.overlaps).toBe(0);
    expect(load.lostLocks).toBe(0);
  });

  test("guardDataLoss: a fail-over and back grants no lock over a live holder that both servers have forgotten", {
    timeout: 60_000,
  }, async () => {
    const key = "guarded";
    const home = await cluster.masterOf(keySlot(key));
    const replicaIndex = (home + MASTERS) % (2 * MASTERS);
    const nodeAdmin = (node: number): Redis => cluster.admin[node] as Redis;
    await markLongInUse(nodeAdmin(home), prefix, toBucket(key));
    const openDriver = async (): Promise<Driver> => {
      const guardDataLoss = { maxTtlMs: 60_000 };
      const driver = withHeldTokens(redis(ioredisCluster, { prefix, guardDataLoss, warn: () => undefined }));
      await driver.open(NO_EVENTS);
      cleanups.push(() => driver.close());
      return driver;
    };
    const [lockClient, other] = [await openDriver(), await openDriver()];
    const [held, lateClaim] = [makeClaim(key), makeClaim(key)];
    await waitForReplicas(nodeAdmin(home), 1);
    // the grant is not replicated, the replica takes over without it, and the old master follows the new one
    cluster.signal(replicaIndex, "SIGSTOP");
    await nodeAdmin(home).call("CLIENT", "KILL", "TYPE", "replica");
    const answer = await lockClient.claim(held);
    expect(answer.state).toBe("held");
    cluster.signal(home, "SIGSTOP");
    cluster.signal(replicaIndex, "SIGCONT");
    await nodeAdmin(replicaIndex).cluster("FAILOVER", "TAKEOVER");
    cluster.signal(home, "SIGCONT");
    await until(async () => /master_link_status:up/.test(await nodeAdmin(home).info("replication")), {
      within: 20_000,
      what: "the old master as a replica",
    });
    await nodeAdmin(home).readonly();
    expect(await nodeAdmin(home).hexists(`${prefix}:3:{${toBucket(key)}}:h`, `k:${key}`)).toBe(0);
    // and is the master again before any request reached the other one
    await cluster.failOver(replicaIndex);
    const answerOf = (call: () => Promise<Answer | undefined>): Promise<Answer> =>
      until(() => call().catch(() => null), { within: 20_000, what: "an answer" }) as Promise<Answer>;
    expect(await answerOf(() => other.claim(lateClaim))).toMatchObject({ state: "waiting" });
    const { token } = answer as { token: bigint };
    expect(await answerOf(async () => (await lockClient.renew([held]))[0])).toMatchObject({ state: "held", token });
    expect(await findRedisViolations(nodeAdmin(home), prefix)).toEqual([]);
    // the connections may still break: a release that is repeated may find that it has succeeded
    const releaseAll = () => Promise.all([lockClient.release(toReleases(held)), other.release(toReleases(lateClaim))]);
    await until(() => releaseAll().catch(() => null), { within: 20_000, what: "releases" });
    expect(await nodeAdmin(home).hexists(`${prefix}:3:{${toBucket(key)}}:h`, `k:${key}`)).toBe(0);
  });

  test("with replicas to wait for a lock outlives its master, and without its replica none is granted", {
    timeout: 60_000,
  }, async () => {
    let index = 0;
    const zero = await cluster.masterOf(keySlot("0"));
    while ((await cluster.masterOf(keySlot(`kept ${index}`))) === zero) index++;
    const key = `kept ${index}`;
    const home = await cluster.masterOf(keySlot(key));
    const replicaIndex = (home + MASTERS) % (2 * MASTERS);
    const options = { replicas: { minAcks: 1, timeoutMs: 200 } };
    const [client, other] = [openLocks(ioredisCluster, options), openLocks(nodeRedisCluster, options)];
    for (const locks of [client, other]) await locks.list(key); // connected
    cluster.signal(replicaIndex, "SIGSTOP");
    for (const locks of [client, other]) {
      const error: unknown = await locks.tryAcquire(key).catch((failure: unknown) => failure);
      expect(error).toMatchObject({
        code: "LOCK_STORE_FAILED",
        cause: { message: expect.stringMatching(/0 of 1 replicas/) },
      });
    }
    cluster.signal(replicaIndex, "SIGCONT");
    const lock = await client.acquire(key, { wait: "10s", ttl: "30s" });
    const next = other.acquire(key, { wait: "60s" });
    await until(async () => (await client.list(key)).length === 2, { within: 5_000, what: "the waiter" });
    await cluster.kill(home);
    await until(async () => (await cluster.masterOf(keySlot(key))) === replicaIndex, {
      within: 20_000,
      what: "the replica",
    });
    // without a replica, until the old master has become one
    await cluster.restart(home);
    await until(() => client.list(key).catch(() => null), { within: 10_000, what: "the new master" });
    expect(lock.signal.aborted).toBe(false);
    expect(await lock.release()).toBe(true);
    expect((await next).token).toBeGreaterThan(lock.token);
  });

  test("with replicas to wait for a client that has not learned of a fail-over opens nevertheless", {
    timeout: 60_000,
  }, async () => {
    const checked = await cluster.masterOf(toHashSlot(`${prefix}:3:{00}:n`)); // the checks with a key go there
    let index = 0;
    while ((await cluster.masterOf(keySlot(`${index}`))) === checked) index++;
    const oldMaster = await cluster.masterOf(keySlot(`${index}`));
    const clients = Array.from({ length: 12 }, ioredisCluster);
    cleanups.push(() => {
      for (const client of clients) client.disconnect();
    });
    await Promise.all(clients.map((client) => client.ping()));
    await cluster.failOver(oldMaster);
    await until(async () => /role:slave/.test(await (cluster.admin[oldMaster] as Redis).info("replication")), {
      within: 20_000,
      what: "the old master as a replica",
    });
    for (const client of clients) {
      const driver = redis(() => client, { prefix, allowEviction: true, replicas: { minAcks: 1, timeoutMs: 200 } });
      await driver.open(NO_EVENTS);
      await driver.close();
    }
  });

  test("a killed master delays its own locks only, and its waiters are served by its replica", {
    timeout: 90_000,
  }, async () => {
    // else Redis itself refuses everything, from when the others agree that it is away until its replica is elected
    for (const redis of cluster.admin) await redis.config("SET", "cluster-require-full-coverage", "no");
    const home = await cluster.masterOf(keySlot("0"));
    let index = 1;
    while ((await cluster.masterOf(keySlot(String(index)))) === home) index++;
    const [client, otherClient] = [openLocks(), openLocks()];
    const otherLock = await otherClient.acquire(String(index), { ttl: "3s" });
    await using load = startContention([client, openLocks(nodeRedisCluster)], "0", 4);
    await load.waitForProgress();
    await cluster.kill(home);
    await load.waitForProgress(20_000);
    await load.waitUntilAllServed();
    expect(otherLock.signal.aborted, "a lock on another master").toBe(false);
    await otherLock.release();
  });
});
