/** A replica that is promoted without the last writes, and other losses: guardDataLoss, and what becomes of tokens. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { RedisOptions } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { bucketOf } from "../../src/drivers/redis/words.ts";
import type { Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { redisViolations } from "../support/inspect-redis.ts";
import type { RedisScene } from "../support/redis-scene.ts";
import { claimOf, longInUse, readBirth, redisScene } from "../support/redis-scene.ts";
import type { RedisServer } from "../support/services/redis.ts";
import { startRedis, whyNoRedis } from "../support/services/redis.ts";
import { demote, promote, replicated, startRedisPair } from "../support/services/redis-pair.ts";
import type { ShiftedRedis } from "../support/services/shifted-redis.ts";
import { startShiftedRedis, whyNoShift } from "../support/services/shifted-redis.ts";
import { until } from "../support/wait-for.ts";

const TTL_MS = 3_000;
const HOUR_MS = 3_600_000;

/** A server of a pair, and what sees and does everything there. */
interface Site<S extends RedisServer = RedisServer> {
  readonly server: S;
  readonly scene: RedisScene;
}

let a: Site;
let b: Site;
const later: (() => Promise<unknown> | undefined)[] = [];
afterEach(async () => {
  for (const work of later.splice(0).reverse()) await work();
});

const site = <S extends RedisServer>(server: S, prefix?: string): Site<S> => {
  const scene = redisScene(server.port, prefix === undefined ? {} : { prefix });
  later.push(
    () => server.stop(),
    () => scene.close(),
  );
  return { server, scene };
};

const driverAt = ({ server, scene }: Site, options: RedisOptions = {}): Driver =>
  redis(() => new Redis(server.port, "127.0.0.1"), { prefix: scene.prefix, warn: () => undefined, ...options });

const clientAt = (at: Site, options: RedisOptions, ttl = TTL_MS): Locks => {
  const locks = createLocks(driverAt(at, options), { ttl, handoffs: 1 });
  later.push(() => locks.close());
  return locks;
};

/** Tokens of those who hold a key, as the store has them. */
const holders = async (at: Site, key: string): Promise<bigint[]> => {
  const views = await at.scene.open(driverAt(at));
  const found = await views.driver.list({ prefix: "" }, 100);
  return found.flatMap(({ holds, answer }) =>
    answer.state === "held" && holds.some((hold) => hold.key === key) ? [answer.token] : [],
  );
};

/** How many places the store itself has in the line of a key. */
const places = async ({ scene }: Site, key: string): Promise<{ held: number; waiting: number }> => {
  const name = (kind: string): string => `${scene.prefix}:1:{${bucketOf(key)}}:${kind}:${key}`;
  return { held: await scene.admin.zcard(name("a")), waiting: await scene.admin.zcard(name("w")) };
};

const guardDataLoss = { longestTtlMs: TTL_MS };

describe.skipIf(whyNoRedis() !== null)("a fail-over and straight back to the same run of the same server", () => {
  beforeEach(async () => {
    const [master, replica] = await startRedisPair();
    a = site(master);
    b = site(replica, a.scene.prefix);
    await longInUse(a.scene.admin, a.scene.prefix);
  }, 60_000);

  /** What the other server granted while it was the master is unknown to it: it took over before, and was asked nothing. */
  const overAndBack = async (): Promise<void> => {
    await demote(a.scene.admin, b.server);
    await promote(a.scene.admin);
  };

  test("is noticed: nobody is granted over a live holder, who keeps its lock and its token", async () => {
    const [one, two] = [clientAt(a, { guardDataLoss }), clientAt(a, { guardDataLoss })];
    await one.using("other", () => undefined);
    await two.using("other", () => undefined);
    await replicated(a.scene.admin, 1);
    await promote(b.scene.admin);
    const lock = await one.acquire("key");
    await overAndBack();
    const next = two.acquire("key", { wait: "30s" });
    let isGranted = false;
    next.then(
      () => {
        isGranted = true;
      },
      () => undefined,
    );
    const began = performance.now();
    await until(async () => (await holders(a, "key")).length > 0, { within: 5_000, what: "the holder" });
    expect(await holders(a, "key")).toEqual([lock.token]);
    expect(await redisViolations(a.scene.admin, a.scene.prefix)).toEqual([]);
    const other = await two.acquire("free", { wait: "30s" });
    expect(performance.now() - began, "nothing is granted for the longest ttl").toBeGreaterThan(TTL_MS * 0.8);
    await other.release();
    expect(isGranted).toBe(false);
    lock.throwIfLost();
    expect(await lock.release()).toBe(true);
    expect((await next).token).toBeGreaterThan(lock.token);
  }, 60_000);

  test("a replica that takes writes grants nothing, though it has the id and the record of its master", async () => {
    const guard = { guardDataLoss: { longestTtlMs: 60_000 } };
    const one = await a.scene.open(driverAt(a, guard));
    await replicated(a.scene.admin, 1);
    await b.scene.admin.config("SET", "replica-read-only", "no");
    const two = await b.scene.open(driverAt(b, guard));
    const [there, here] = [claimOf("key"), claimOf("key")];
    expect((await two.claim(there)).state).toBe("waiting");
    expect((await one.claim(here)).state).toBe("held");
    await two.driver.release([there]);
    await one.driver.release([here]);
  }, 60_000);

  test("what loses nothing makes nobody wait: a replica that goes and comes back, a save, a rewritten file", async () => {
    const { admin } = a.scene;
    const one = await a.scene.open(driverAt(a, { guardDataLoss: { longestTtlMs: 60_000 } }));
    const { reign } = await readBirth(admin, a.scene.prefix);
    await b.server.restart();
    await replicated(admin, 1);
    await admin.bgsave();
    await admin.bgrewriteaof().catch(() => undefined); // one after the other, if the save is still under way
    await admin.config("REWRITE").catch(() => undefined); // it has no file
    await admin.call("CLIENT", "KILL", "TYPE", "replica");
    await b.scene.admin.call("REPLICAOF", "NO", "ONE");
    await demote(b.scene.admin, a.server);
    await replicated(admin, 1);
    const claim = claimOf("key");
    expect(await one.claim(claim)).toMatchObject({ state: "held" });
    expect((await readBirth(admin, a.scene.prefix)).reign).toBe(reign);
    await one.driver.release([claim]);
  }, 60_000);

  test("who was granted meanwhile and waits there still is placed again, in front of the one who had gone", async () => {
    const [one, two] = [clientAt(a, { guardDataLoss }), clientAt(a, { guardDataLoss })];
    const gone = await one.acquire("key");
    const next = two.acquire("key");
    await until(async () => (await one.list("key")).length === 2, { within: 5_000, what: "the waiter" });
    await replicated(a.scene.admin, 1);
    await promote(b.scene.admin);
    await gone.release();
    const lock = await next;
    await overAndBack();
    await until(async () => (await holders(a, "key"))[0] === lock.token, { within: 5_000, what: "the holder" });
    expect(await holders(a, "key")).toEqual([lock.token]);
    expect(await places(a, "key")).toEqual({ held: 1, waiting: 0 });
    expect(await redisViolations(a.scene.admin, a.scene.prefix)).toEqual([]);
    lock.throwIfLost();
    expect(await lock.release()).toBe(true);
  }, 60_000);

  test("a claim over several keys, one of which it still waits for there, is placed again in all of them", async () => {
    const [one, two] = [clientAt(a, { guardDataLoss }), clientAt(a, { guardDataLoss })];
    const gone = await one.acquire("b");
    const next = two.all("a", "b").acquire();
    await until(async () => (await one.list("b")).length === 2, { within: 5_000, what: "the waiter" });
    await replicated(a.scene.admin, 1);
    await promote(b.scene.admin);
    await gone.release();
    const both = await next;
    await overAndBack();
    for (const key of ["a", "b"]) {
      await until(async () => (await holders(a, key))[0] === both.token, {
        within: 5_000,
        what: `the holder of ${key}`,
      });
      expect(await holders(a, key)).toEqual([both.token]);
      expect(await places(a, key)).toEqual({ held: 1, waiting: 0 });
      expect(await redisViolations(a.scene.admin, a.scene.prefix)).toEqual([]);
      await expect(one.acquire(key, { wait: "100ms" })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    }
    both.throwIfLost();
    expect(await both.release()).toBe(true);
    const free = await one.all("a", "b").acquire({ wait: "30s" });
    expect(free.token).toBeGreaterThan(both.token);
    expect(await free.release()).toBe(true);
  }, 60_000);
});

const why = whyNoShift();

describe.skipIf(why !== null)(`tokens after the promotion of a replica whose clock is behind (${why ?? "run"})`, () => {
  /** A master, and its replica whose clock is so far ahead. Gives what stops the clock of the master. */
  const shifted = async (byMs: number): Promise<() => void> => {
    const [master, replica] = await startRedisPair<ShiftedRedis, ShiftedRedis>(startShiftedRedis, startShiftedRedis);
    a = site(master);
    b = site(replica, a.scene.prefix);
    replica.shift(byMs);
    return () => master.freeze(Date.now() * 1_000);
  };

  test.each([
    ["5 s", 5_000],
    ["an hour", HOUR_MS],
  ])(
    "by %s: with guardDataLoss they go on above all that were granted, also those that were not passed on",
    async (_, byMs) => {
      const stopClock = await shifted(-byMs);
      stopClock(); // else the mark could be behind the last grant, where this machine is slow
      await longInUse(a.scene.admin, a.scene.prefix);
      const short = { guardDataLoss: { longestTtlMs: 500 } };
      const one = await a.scene.open(driverAt(a, short));
      const first = claimOf("other", { ttlMs: 500 });
      await one.hold(first);
      await one.driver.release([first]);
      await replicated(a.scene.admin, 1);
      await promote(b.scene.admin);
      // a grant that is not passed on, of somebody who does not come back to tell
      const { token } = await one.hold(claimOf("key", { ttlMs: 500, tokens: 16 }));
      const two = await b.scene.open(driverAt(b, short));
      const next = claimOf("key", { ttlMs: 500 });
      expect((await two.claim(next)).state).toBe("waiting");
      const granted = await two.granted(next);
      expect(granted.token).toBeGreaterThan(token + 15n);
      const { floor, mark } = await readBirth(b.scene.admin, b.scene.prefix);
      expect(floor).toBeGreaterThan(token + 15n);
      expect(mark).toBeGreaterThanOrEqual(granted.token + 2_000_000n);
      await two.driver.release([next]);
      const after = await two.hold(claimOf("key", { ttlMs: 500 }));
      expect(after.token).toBeGreaterThan(granted.token);
      if (byMs === HOUR_MS) expect([granted.token, after.token]).toEqual([floor + 1n, floor + 2n]);
    },
    60_000,
  );

  test("by an hour: with replicas they never fall, without any pause", async () => {
    await shifted(-HOUR_MS);
    const replicas = { atLeast: 1, withinMs: 4_000 };
    const one = await a.scene.open(driverAt(a, { replicas }));
    const { token } = await one.hold(claimOf("key", { ttlMs: 500, tokens: 16 }));
    await a.server.stop();
    await promote(b.scene.admin);
    const two = await b.scene.open(driverAt(b));
    const next = claimOf("key", { ttlMs: 500 });
    await two.claim(next);
    expect((await two.granted(next)).token).toBeGreaterThan(token + 15n);
  }, 60_000);

  test.each([
    ["as much as a lease", TTL_MS + 1_000],
    ["an hour", HOUR_MS],
  ])(
    "a clock that is ahead by %s ends no lease of those who hold: they place their claims again",
    async (_, byMs) => {
      await shifted(byMs);
      await longInUse(a.scene.admin, a.scene.prefix);
      const client = new Redis(a.server.port, "127.0.0.1");
      const locks = createLocks(
        redis(() => client, { prefix: a.scene.prefix, guardDataLoss, warn: () => undefined }),
        {
          ttl: TTL_MS,
        },
      );
      later.push(() => locks.close());
      const lock = await locks.acquire("key");
      await replicated(a.scene.admin, 1);
      await promote(b.scene.admin);
      // as by Sentinels that name another master
      client.options.port = b.server.port;
      client.disconnect(true);
      const three = clientAt(b, { guardDataLoss });
      const next = three.acquire("key", { wait: "30s" });
      next.catch(() => undefined);
      await until(async () => (await three.list("key")).length === 2, {
        within: 5_000,
        what: "the waiter and the holder",
      });
      expect(await holders(b, "key")).toEqual([lock.token]);
      expect(await redisViolations(b.scene.admin, b.scene.prefix)).toEqual([]);
      await three.using("free", () => undefined);
      lock.throwIfLost();
      expect(await lock.release()).toBe(true);
      expect((await next).token).toBeGreaterThan(lock.token);
    },
    60_000,
  );

  test("a token floor far ahead raises the mark with its grant", async () => {
    await shifted(0);
    await longInUse(a.scene.admin, a.scene.prefix);
    const short = { guardDataLoss: { longestTtlMs: 500 } };
    const one = await a.scene.open(driverAt(a, short));
    const floor = BigInt(Date.now()) * 1_000n + 3_600_000_000n;
    const { token } = await one.hold(claimOf("key", { ttlMs: 500, floor, tokens: 16 }));
    expect(token).toBeGreaterThanOrEqual(floor);
    await replicated(a.scene.admin, 1);
    await promote(b.scene.admin);
    const { token: lost } = await one.hold(claimOf("other", { ttlMs: 500, floor: token + 20n }));
    const two = await b.scene.open(driverAt(b, short));
    const next = claimOf("other", { ttlMs: 500 });
    await two.claim(next);
    expect((await two.granted(next)).token).toBeGreaterThan(lost);
  }, 60_000);
});

describe.skipIf(whyNoRedis() !== null)("a restart with the data kept", () => {
  beforeEach(async () => {
    a = site(await startRedis(["--appendonly", "yes", "--appendfsync", "always"]));
    await longInUse(a.scene.admin, a.scene.prefix);
  }, 60_000);

  test("is over for tokens when it grants again: they rise also after a flush that follows", async () => {
    const short = { guardDataLoss: { longestTtlMs: 500 } };
    const one = await a.scene.open(driverAt(a, short));
    const first = claimOf("key", { ttlMs: 500 });
    const { token } = await one.hold(first);
    await one.driver.release([first]);
    const { mark } = await readBirth(a.scene.admin, a.scene.prefix);
    await a.server.restart();
    const two = await a.scene.open(driverAt(a, short));
    expect((await readBirth(a.scene.admin, a.scene.prefix)).floor, "the data was kept").toBe(mark);
    const second = claimOf("key", { ttlMs: 500 });
    expect((await two.claim(second)).state).toBe("waiting");
    const kept = await two.granted(second);
    expect(kept.token).toBeGreaterThan(token);
    const [seconds = 0, micros = 0] = await a.scene.admin.time();
    expect(kept.token, "no token is ahead of the clock").toBeLessThanOrEqual(
      BigInt(seconds) * 1_000_000n + BigInt(micros),
    );
    await two.driver.release([second]);
    await a.scene.admin.flushall();
    const third = claimOf("key", { ttlMs: 500 });
    expect((await two.claim(third)).state).toBe("waiting");
    expect((await two.granted(third)).token).toBeGreaterThan(kept.token);
    await two.driver.release([third]);
  }, 60_000);

  test("again and again within the grace period leaves the floor where it was, and a holder its token", async () => {
    const long = { guardDataLoss: { longestTtlMs: 60_000 } };
    const one = await a.scene.open(driverAt(a, long));
    const held = claimOf("key");
    const { token } = await one.hold(held);
    const { mark } = await readBirth(a.scene.admin, a.scene.prefix);
    expect(mark).toBeGreaterThanOrEqual(token + 30_000_000n);
    for (let restart = 0; restart < 3; restart++) {
      await a.server.restart();
      const next = await a.scene.open(driverAt(a, long));
      expect(await next.ask(held)).toMatchObject({ state: "held", token });
      expect((await next.claim(claimOf(`key ${restart}`, { wait: false }))).state).toBe("none");
      const { floor, mark: after, opensAt } = await readBirth(a.scene.admin, a.scene.prefix);
      expect([floor, after]).toEqual([mark, mark]);
      expect(opensAt).toBeLessThanOrEqual(Date.now() + 60_000);
      await next.driver.close();
    }
    expect(await one.driver.release([held])).toEqual([true]);
  }, 60_000);
});
