/** A replica that is promoted without the last writes, and other losses: guardDataLoss, and the tokens afterwards. */

import { Redis } from "ioredis";
import type { TestContext } from "vitest";
import { describe, expect, test } from "vitest";
import type { RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { redisUnavailableReason, startRedis } from "../../support/stores/redis.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, markLongInUse, readRunRecord } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";
import {
  demoteMaster,
  promoteReplica,
  startRedisPair,
  waitForReplicas,
} from "../../support/stores/redis-replication.ts";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";

const TTL_MS = 3_000;
const HOUR_MS = 3_600_000;

type OnTestFinished = TestContext["onTestFinished"];

/** A server of a pair, and a fixture for it. They end with the test, whatever was opened last first. */
interface ServerSite<S extends RedisServer = RedisServer> {
  readonly server: S;
  readonly fixture: RedisFixture;
  readonly onTestFinished: OnTestFinished;
}

const openSite = <S extends RedisServer>(server: S, onTestFinished: OnTestFinished, prefix?: string): ServerSite<S> => {
  const fixture = createRedisFixture(server.port, prefix === undefined ? {} : { prefix });
  onTestFinished(() => server.stop(), 60_000);
  onTestFinished(() => fixture.close(), 60_000);
  return { server, fixture, onTestFinished };
};

/** A master that has been in use for long, and its replica. */
const openPair = async (onTestFinished: OnTestFinished): Promise<readonly [ServerSite, ServerSite]> => {
  const [master, replica] = await startRedisPair();
  const siteA = openSite(master, onTestFinished);
  const siteB = openSite(replica, onTestFinished, siteA.fixture.prefix);
  await markLongInUse(siteA.fixture.admin, siteA.fixture.prefix);
  return [siteA, siteB];
};

const openDriver = ({ server, fixture }: ServerSite, options: RedisOptions = {}): Driver =>
  redis(() => new Redis(server.port, "127.0.0.1"), { prefix: fixture.prefix, warn: () => undefined, ...options });

const openClient = (site: ServerSite, options: RedisOptions, ttl = TTL_MS): Locks => {
  const locks = createLocks(openDriver(site, options), { ttl, order: "strict" });
  site.onTestFinished(() => locks.close());
  return locks;
};

/** Tokens of the holders of a key, as the store has them. */
const listHolders = async (site: ServerSite, key: string): Promise<bigint[]> => {
  const views = await site.fixture.open(openDriver(site));
  const claimViews = (await views.driver.list({ prefix: "" }, { max: 100 })).items;
  return claimViews.flatMap(({ locks, answer }) =>
    answer.state === "held" && locks.some((lockSpec) => lockSpec.key === key) ? [answer.token] : [],
  );
};

/** The number of entries in the store's queue of a key. */
const countEntries = async ({ fixture }: ServerSite, key: string): Promise<{ held: number; waiting: number }> => {
  const name = (kind: string): string => `${fixture.prefix}:3:{${toBucket(key)}}:${kind}:${key}`;
  const state = await fixture.admin.hget(fixture.hashOf(key), `k:${key}`);
  // totals have scores of at most 0
  const held = state === "F" ? await fixture.admin.zcount(name("a"), "(0", "+inf") : state === null ? 0 : 1;
  return { held, waiting: await fixture.admin.zcard(name("w")) };
};

const guardDataLoss = { maxTtlMs: TTL_MS };

describe.skipIf(redisUnavailableReason() !== null)(
  "a fail-over and straight back to the same run of the same server",
  () => {
    /** What the other server granted while it was the master is unknown to it: it took over before, and was asked nothing. */
    const failOverAndBack = async ([siteA, siteB]: readonly [ServerSite, ServerSite]): Promise<void> => {
      await demoteMaster(siteA.fixture.admin, siteB.server);
      await promoteReplica(siteA.fixture.admin);
    };

    test.concurrent("is noticed: no lock is granted over a live holder, which keeps its lock and its token", async ({
      onTestFinished,
    }) => {
      const [siteA, siteB] = await openPair(onTestFinished);
      const [one, two] = [openClient(siteA, { guardDataLoss }), openClient(siteA, { guardDataLoss })];
      await one.using("other", () => undefined);
      await two.using("other", () => undefined);
      await waitForReplicas(siteA.fixture.admin, 1);
      await promoteReplica(siteB.fixture.admin);
      const lock = await one.acquire("key");
      await failOverAndBack([siteA, siteB]);
      const next = two.acquire("key", { wait: "30s" });
      let isGranted = false;
      next.then(
        () => {
          isGranted = true;
        },
        () => undefined,
      );
      const startedAt = performance.now();
      await until(async () => (await listHolders(siteA, "key")).length > 0, { within: 5_000, what: "the holder" });
      expect(await listHolders(siteA, "key")).toEqual([lock.token]);
      expect(await findRedisViolations(siteA.fixture.admin, siteA.fixture.prefix)).toEqual([]);
      const otherLock = await two.acquire("free", { wait: "30s" });
      expect(performance.now() - startedAt, "nothing is granted for the longest ttl").toBeGreaterThan(TTL_MS * 0.8);
      await otherLock.release();
      expect(isGranted).toBe(false);
      lock.throwIfLost();
      expect(await lock.release()).toBe(true);
      expect((await next).token).toBeGreaterThan(lock.token);
    }, 60_000);

    test.concurrent("a master that becomes a writable replica grants nothing, though it has the id and the record of its master", async ({
      onTestFinished,
    }) => {
      const [siteA, siteB] = await openPair(onTestFinished);
      const guardOptions = { guardDataLoss: { maxTtlMs: 60_000 } };
      const lockClient = await siteA.fixture.open(openDriver(siteA, guardOptions));
      await promoteReplica(siteB.fixture.admin);
      const two = await siteB.fixture.open(openDriver(siteB, guardOptions));
      await siteB.fixture.admin.config("SET", "replica-read-only", "no");
      await demoteMaster(siteB.fixture.admin, siteA.server);
      await waitForReplicas(siteA.fixture.admin, 1);
      const [there, here] = [makeClaim("key"), makeClaim("key")];
      expect((await two.claim(there)).state).toBe("waiting");
      expect((await lockClient.claim(here)).state).toBe("held");
      await two.driver.release(toReleases(there));
      await lockClient.driver.release(toReleases(here));
    }, 60_000);

    test.concurrent("without data loss no claim is delayed: a replica that leaves and returns, a save, a rewritten file", async ({
      onTestFinished,
    }) => {
      const [siteA, siteB] = await openPair(onTestFinished);
      const { admin } = siteA.fixture;
      const lockClient = await siteA.fixture.open(openDriver(siteA, { guardDataLoss: { maxTtlMs: 60_000 } }));
      const { replicationId } = await readRunRecord(admin, siteA.fixture.prefix);
      await siteB.server.restart();
      await waitForReplicas(admin, 1);
      await admin.bgsave();
      await admin.bgrewriteaof().catch(() => undefined); // one after the other, if the save is still under way
      await admin.config("REWRITE").catch(() => undefined); // it has no file
      await admin.call("CLIENT", "KILL", "TYPE", "replica");
      await siteB.fixture.admin.call("REPLICAOF", "NO", "ONE");
      await demoteMaster(siteB.fixture.admin, siteA.server);
      await waitForReplicas(admin, 1);
      const claim = makeClaim("key");
      expect(await lockClient.claim(claim)).toMatchObject({ state: "held" });
      expect((await readRunRecord(admin, siteA.fixture.prefix)).replicationId).toBe(replicationId);
      await lockClient.driver.release(toReleases(claim));
    }, 60_000);

    test.concurrent("a holder granted meanwhile that still waits there is placed again, in front of the earlier one", async ({
      onTestFinished,
    }) => {
      const [siteA, siteB] = await openPair(onTestFinished);
      const [one, two] = [openClient(siteA, { guardDataLoss }), openClient(siteA, { guardDataLoss })];
      const lostLock = await one.acquire("key");
      const next = two.acquire("key");
      await until(async () => (await one.list("key")).length === 2, { within: 5_000, what: "the waiter" });
      await waitForReplicas(siteA.fixture.admin, 1);
      await promoteReplica(siteB.fixture.admin);
      await lostLock.release();
      const lock = await next;
      await failOverAndBack([siteA, siteB]);
      await until(async () => (await listHolders(siteA, "key"))[0] === lock.token, {
        within: 5_000,
        what: "the holder",
      });
      expect(await listHolders(siteA, "key")).toEqual([lock.token]);
      expect(await countEntries(siteA, "key")).toEqual({ held: 1, waiting: 0 });
      expect(await findRedisViolations(siteA.fixture.admin, siteA.fixture.prefix)).toEqual([]);
      lock.throwIfLost();
      expect(await lock.release()).toBe(true);
    }, 60_000);

    test.concurrent("a claim over several keys that still waits for one of them there is placed again in all of them", async ({
      onTestFinished,
    }) => {
      const [siteA, siteB] = await openPair(onTestFinished);
      const [one, two] = [openClient(siteA, { guardDataLoss }), openClient(siteA, { guardDataLoss })];
      const lostLock = await one.acquire("b");
      const next = two.all("a", "b").acquire();
      await until(async () => (await one.list("b")).length === 2, { within: 5_000, what: "the waiter" });
      await waitForReplicas(siteA.fixture.admin, 1);
      await promoteReplica(siteB.fixture.admin);
      await lostLock.release();
      const bothLocks = await next;
      await failOverAndBack([siteA, siteB]);
      for (const key of ["a", "b"]) {
        await until(async () => (await listHolders(siteA, key))[0] === bothLocks.token, {
          within: 5_000,
          what: `the holder of ${key}`,
        });
        expect(await listHolders(siteA, key)).toEqual([bothLocks.token]);
        expect(await countEntries(siteA, key)).toEqual({ held: 1, waiting: 0 });
        expect(await findRedisViolations(siteA.fixture.admin, siteA.fixture.prefix)).toEqual([]);
        await expect(one.acquire(key, { wait: "100ms" })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
      }
      bothLocks.throwIfLost();
      expect(await bothLocks.release()).toBe(true);
      const freeLock = await one.all("a", "b").acquire({ wait: "30s" });
      expect(freeLock.token).toBeGreaterThan(bothLocks.token);
      expect(await freeLock.release()).toBe(true);
    }, 60_000);
  },
);

const unavailableReason = shiftedClockUnavailableReason();

describe.skipIf(unavailableReason !== null)(
  `tokens after the promotion of a replica whose clock is behind (${unavailableReason ?? "run"})`,
  () => {
    /** A master, and its replica whose clock is so far ahead. Gives what stops the clock of the master. */
    const shifted = async (
      byMs: number,
      onTestFinished: OnTestFinished,
    ): Promise<{ readonly siteA: ServerSite; readonly siteB: ServerSite; readonly stopClock: () => void }> => {
      const [master, replica] = await startRedisPair<ShiftedClockRedis, ShiftedClockRedis>(
        startShiftedClockRedis,
        startShiftedClockRedis,
      );
      const siteA = openSite(master, onTestFinished);
      const siteB = openSite(replica, onTestFinished, siteA.fixture.prefix);
      replica.shift(byMs);
      return { siteA, siteB, stopClock: () => master.freeze(Date.now() * 1_000) };
    };

    test.concurrent.for([
      ["5 s", 5_000],
      ["an hour", HOUR_MS],
    ] as const)(
      "by %s: with guardDataLoss they rise above all granted tokens, including those of missing hand-offs",
      { timeout: 60_000 },
      async ([, byMs], { onTestFinished }) => {
        const { siteA, siteB, stopClock } = await shifted(-byMs, onTestFinished);
        stopClock(); // else the ceiling could be behind the last grant, where this machine is slow
        await markLongInUse(siteA.fixture.admin, siteA.fixture.prefix);
        const shortGuard = { guardDataLoss: { maxTtlMs: 500 } };
        const lockClient = await siteA.fixture.open(openDriver(siteA, shortGuard));
        const first = makeClaim("other", { ttlMs: 500 });
        await lockClient.claimHeld(first);
        await lockClient.driver.release(toReleases(first));
        await waitForReplicas(siteA.fixture.admin, 1);
        await promoteReplica(siteB.fixture.admin);
        // an unreplicated grant, to a client that does not return to report it
        const { token } = await lockClient.claimHeld(makeClaim("key", { ttlMs: 500, tokenCount: 16 }));
        const two = await siteB.fixture.open(openDriver(siteB, shortGuard));
        const next = makeClaim("key", { ttlMs: 500 });
        expect((await two.claim(next)).state).toBe("waiting");
        const granted = await two.waitForGrant(next);
        expect(granted.token).toBeGreaterThan(token + 15n);
        const { floor, tokenCeiling } = await readRunRecord(siteB.fixture.admin, siteB.fixture.prefix);
        expect(floor).toBeGreaterThan(token + 15n);
        expect(tokenCeiling).toBeGreaterThanOrEqual(granted.token + 2_000_000n);
        await two.driver.release(toReleases(next));
        const after = await two.claimHeld(makeClaim("key", { ttlMs: 500 }));
        expect(after.token).toBeGreaterThan(granted.token);
        if (byMs === HOUR_MS) expect([granted.token, after.token]).toEqual([floor + 1n, floor + 2n]);
      },
    );

    test.concurrent("by an hour: with replicas they never fall, without any pause", async ({ onTestFinished }) => {
      const { siteA, siteB } = await shifted(-HOUR_MS, onTestFinished);
      const replicas = { minAcks: 1, timeoutMs: 4_000 };
      const lockClient = await siteA.fixture.open(openDriver(siteA, { replicas }));
      const { token } = await lockClient.claimHeld(makeClaim("key", { ttlMs: 500, tokenCount: 16 }));
      await siteA.server.stop();
      await promoteReplica(siteB.fixture.admin);
      const two = await siteB.fixture.open(openDriver(siteB));
      const next = makeClaim("key", { ttlMs: 500 });
      await two.claim(next);
      expect((await two.waitForGrant(next)).token).toBeGreaterThan(token + 15n);
    }, 60_000);

    test.concurrent.for([
      ["as much as a lease", TTL_MS + 1_000],
      ["an hour", HOUR_MS],
    ] as const)(
      "a clock that is ahead by %s ends no lease of a holder: holders place their claims again",
      { timeout: 60_000 },
      async ([, byMs], { onTestFinished }) => {
        const { siteA, siteB } = await shifted(byMs, onTestFinished);
        await markLongInUse(siteA.fixture.admin, siteA.fixture.prefix);
        const client = new Redis(siteA.server.port, "127.0.0.1");
        const locks = createLocks(
          redis(() => client, { prefix: siteA.fixture.prefix, guardDataLoss, warn: () => undefined }),
          {
            ttl: TTL_MS,
          },
        );
        onTestFinished(() => locks.close());
        const lock = await locks.acquire("key");
        await waitForReplicas(siteA.fixture.admin, 1);
        await promoteReplica(siteB.fixture.admin);
        // as by Sentinels that name another master
        client.options.port = siteB.server.port;
        client.disconnect(true);
        const three = openClient(siteB, { guardDataLoss });
        const next = three.acquire("key", { wait: "30s" });
        next.catch(() => undefined);
        await until(async () => (await three.list("key")).length === 2, {
          within: 5_000,
          what: "the waiter and the holder",
        });
        expect(await listHolders(siteB, "key")).toEqual([lock.token]);
        expect(await findRedisViolations(siteB.fixture.admin, siteB.fixture.prefix)).toEqual([]);
        await three.using("free", () => undefined);
        lock.throwIfLost();
        expect(await lock.release()).toBe(true);
        expect((await next).token).toBeGreaterThan(lock.token);
      },
    );

    test.concurrent("a token floor far ahead raises the ceiling with its grant", async ({ onTestFinished }) => {
      const { siteA, siteB } = await shifted(0, onTestFinished);
      await markLongInUse(siteA.fixture.admin, siteA.fixture.prefix);
      const shortGuard = { guardDataLoss: { maxTtlMs: 500 } };
      const lockClient = await siteA.fixture.open(openDriver(siteA, shortGuard));
      const floor = BigInt(Date.now()) * 1_000n + 3_600_000_000n;
      const { token } = await lockClient.claimHeld(makeClaim("key", { ttlMs: 500, floor, tokenCount: 16 }));
      expect(token).toBeGreaterThanOrEqual(floor);
      await waitForReplicas(siteA.fixture.admin, 1);
      await promoteReplica(siteB.fixture.admin);
      const { token: lostToken } = await lockClient.claimHeld(makeClaim("other", { ttlMs: 500, floor: token + 20n }));
      const two = await siteB.fixture.open(openDriver(siteB, shortGuard));
      const next = makeClaim("other", { ttlMs: 500 });
      await two.claim(next);
      expect((await two.waitForGrant(next)).token).toBeGreaterThan(lostToken);
    }, 60_000);
  },
);

describe.skipIf(redisUnavailableReason() !== null)("a restart with the data kept", () => {
  const openOne = async (onTestFinished: OnTestFinished): Promise<ServerSite> => {
    const site = openSite(await startRedis(["--appendonly", "yes", "--appendfsync", "always"]), onTestFinished);
    await markLongInUse(site.fixture.admin, site.fixture.prefix);
    return site;
  };

  test.concurrent("is over for tokens at the next grant: they rise also after a flush that follows", async ({
    onTestFinished,
  }) => {
    const siteA = await openOne(onTestFinished);
    const shortGuard = { guardDataLoss: { maxTtlMs: 500 } };
    const lockClient = await siteA.fixture.open(openDriver(siteA, shortGuard));
    const first = makeClaim("key", { ttlMs: 500 });
    const { token } = await lockClient.claimHeld(first);
    await lockClient.driver.release(toReleases(first));
    const { tokenCeiling } = await readRunRecord(siteA.fixture.admin, siteA.fixture.prefix);
    await siteA.server.restart();
    const two = await siteA.fixture.open(openDriver(siteA, shortGuard));
    expect((await readRunRecord(siteA.fixture.admin, siteA.fixture.prefix)).floor, "the data was kept").toBe(
      tokenCeiling,
    );
    const second = makeClaim("key", { ttlMs: 500 });
    expect((await two.claim(second)).state).toBe("waiting");
    const kept = await two.waitForGrant(second);
    expect(kept.token).toBeGreaterThan(token);
    const [seconds = 0, micros = 0] = await siteA.fixture.admin.time();
    expect(kept.token, "no token is ahead of the clock").toBeLessThanOrEqual(
      BigInt(seconds) * 1_000_000n + BigInt(micros),
    );
    await two.driver.release(toReleases(second));
    await siteA.fixture.admin.flushall();
    const third = makeClaim("key", { ttlMs: 500 });
    expect((await two.claim(third)).state).toBe("waiting");
    expect((await two.waitForGrant(third)).token).toBeGreaterThan(kept.token);
    await two.driver.release(toReleases(third));
  }, 60_000);

  test.concurrent("again and again within the grace period leaves the floor unchanged, and a holder its token", async ({
    onTestFinished,
  }) => {
    const siteA = await openOne(onTestFinished);
    const long = { guardDataLoss: { maxTtlMs: 60_000 } };
    const lockClient = await siteA.fixture.open(openDriver(siteA, long));
    const held = makeClaim("key");
    const { token } = await lockClient.claimHeld(held);
    const { tokenCeiling } = await readRunRecord(siteA.fixture.admin, siteA.fixture.prefix);
    expect(tokenCeiling).toBeGreaterThanOrEqual(token + 30_000_000n);
    for (let restart = 0; restart < 3; restart++) {
      await siteA.server.restart();
      const next = await siteA.fixture.open(openDriver(siteA, long));
      expect(await next.renewOnce(held)).toMatchObject({ state: "held", token });
      expect((await next.claim(makeClaim(`key ${restart}`, { wait: false }))).state).toBe("none");
      const {
        floor,
        tokenCeiling: after,
        graceEndsAt,
      } = await readRunRecord(siteA.fixture.admin, siteA.fixture.prefix);
      expect([floor, after]).toEqual([tokenCeiling, tokenCeiling]);
      expect(graceEndsAt).toBeLessThanOrEqual(Date.now() + 60_000);
      await next.driver.close();
    }
    // its client reconnects by itself, after a pause of its own
    const isConnected = (): Promise<boolean> =>
      lockClient.driver.list({ key: "key" }, { max: 1 }).then(
        () => true,
        () => false,
      );
    await until(isConnected, { within: 5_000, what: "the first client to reconnect" });
    expect(await lockClient.driver.release(toReleases(held))).toEqual([true]);
  }, 60_000);
});
