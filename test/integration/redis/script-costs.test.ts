/** The cost of the scripts, and what they must not publish or refuse. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(async () => {
    await fixture.admin.config("SET", "maxmemory", "0", "min-replicas-to-write", "0");
    await fixture.close();
  });

  /** Commands executed in scripts since the last call, by name. */
  const commands = async (): Promise<Record<string, number>> => {
    const stats = await fixture.admin.info("commandstats");
    await fixture.admin.config("RESETSTAT");
    const counts = [...stats.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].map(([, name = "", calls]) => [
      name,
      Number(calls),
    ]);
    return Object.fromEntries(counts.filter(([name]) => !/config|info|evalsha|ping|publish/.test(String(name))));
  };
  const sumOf = (counts: Record<string, number>): number =>
    Object.values(counts).reduce((sum, count) => sum + count, 0);
  /** An id for which turn.lua does not look for stale fields. */
  const makeSilentClaim = (key: string): ReturnType<typeof makeClaim> => {
    for (;;) {
      const claim = makeClaim(key);
      if (!claim.id.endsWith("a")) return claim;
    }
  };

  /** The first claim of an hour in a bucket sets the time to live of its hash. */
  const openUsed = async (): Promise<Awaited<ReturnType<typeof fixture.open>>> => {
    const lockClient = await fixture.open();
    const claim = makeSilentClaim("key");
    await lockClient.claimHeld(claim);
    await lockClient.driver.release(toReleases(claim));
    await commands();
    return lockClient;
  };

  test("acquire and release of a free key take 3 commands each, a renewal 2 or 3", async () => {
    const lockClient = await openUsed();
    const claim = { ...makeSilentClaim("key"), ttlMs: 2_000 };
    const start = performance.now();
    await lockClient.claimHeld(claim);
    expect(await commands()).toEqual({ time: 1, hmget: 1, hset: 1 });
    await lockClient.renewOnce(claim);
    expect(await commands(), "more than seven eighths of the lease are left").toEqual({ time: 1, hmget: 1 });
    await until(() => performance.now() > start + 300, { within: 5_000, what: "an eighth of the lease" });
    await lockClient.renewOnce(claim);
    expect(await commands()).toEqual({ time: 1, hmget: 1, hset: 1 });
    await lockClient.driver.release(toReleases(claim));
    expect(await commands()).toEqual({ time: 1, hget: 1, hdel: 1 });
  });

  test("a thousand pairs of a free key take at most 6.5 commands each, with those that look for stale fields", async () => {
    const lockClient = await openUsed();
    for (let pair = 0; pair < 1_000; pair++) {
      const claim = makeClaim("key");
      await lockClient.claimHeld(claim);
      await lockClient.driver.release(toReleases(claim));
    }
    expect(sumOf(await commands()) / 1_000).toBeLessThan(6.5);
  });

  test("in strict order a claim that queues and the release that grants it take at most 14 commands", async () => {
    const [lockClient, other] = [await openUsed(), await fixture.open()];
    let holder = makeClaim("key");
    await lockClient.claimHeld(holder);
    let waiter = makeClaim("key");
    await other.claim(waiter);
    await commands();
    for (let pair = 0; pair < 200; pair++) {
      const next = makeClaim("key");
      await (pair % 2 === 0 ? lockClient : other).claim(next);
      await (pair % 2 === 0 ? lockClient : other).driver.release(toReleases(holder));
      [holder, waiter] = [waiter, next];
    }
    const stats = await fixture.admin.info("commandstats");
    const publications = Number(/^cmdstat_publish:calls=(\d+)/m.exec(stats)?.[1]);
    expect(publications).toBe(200);
    const counts = await commands();
    expect((sumOf(counts) + publications) / 200, JSON.stringify(counts)).toBeLessThanOrEqual(14);
    for (const [claim, owner] of [
      [holder, lockClient],
      [waiter, other],
    ] as const)
      await owner.driver.release(toReleases(claim));
  });

  test("a hand-off to an exclusive waiter takes 7 commands and one publication", async () => {
    const [lockClient, other] = [await openUsed(), await fixture.open()];
    const [holder, waiter] = [makeSilentClaim("key"), makeSilentClaim("key")];
    await lockClient.claimHeld(holder);
    await other.claim(waiter);
    await commands();
    await lockClient.driver.release(toReleases(holder));
    const stats = await fixture.admin.info("commandstats");
    expect(Number(/^cmdstat_publish:calls=(\d+)/m.exec(stats)?.[1])).toBe(1);
    expect(sumOf(await commands())).toBe(7);
    await other.driver.release(toReleases(waiter));
  });

  test("a release that grants another waiter of the same client answers with it: nothing is published", async () => {
    const lockClient = await fixture.open();
    const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
    await lockClient.claimHeld(holder);
    await lockClient.claim(waiter);
    await fixture.admin.config("RESETSTAT");
    expect(await lockClient.driver.release(toReleases(holder))).toEqual([true]);
    expect(lockClient.pushes.at(-1)).toMatchObject({ id: waiter.id, answer: { state: "held" } });
    expect(await fixture.admin.info("commandstats")).not.toContain("cmdstat_publish");
    expect((await lockClient.renewOnce(waiter)).state).toBe("held");
    await lockClient.driver.release(toReleases(waiter));
  });

  test("a release that is answered too late makes its process ask about its waiters", async () => {
    const lockClient = await fixture.open(
      redis(() => new Redis(server().port, "127.0.0.1"), { prefix: fixture.prefix, commandTimeoutMs: 1_000 }),
    );
    const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
    await lockClient.claimHeld(holder);
    await lockClient.claim(waiter);
    server().signal("SIGSTOP");
    try {
      await expect(lockClient.driver.release(toReleases(holder))).rejects.toThrow("no answer within 1000 ms");
    } finally {
      server().signal("SIGCONT");
    }
    await until(() => lockClient.pushes.some(({ id }) => id === null), { within: 5_000, what: "a recheck for all" });
    // a call may be abandoned again
    const isHeld = async (): Promise<boolean> =>
      (await lockClient.renewOnce(waiter).catch(() => null))?.state === "held";
    await until(isHeld, { within: 5_000, what: "its answer" });
    await lockClient.driver.release(toReleases(waiter));
  });

  describe("when memory is full", () => {
    const fillMemory = (): Promise<unknown> => fixture.admin.config("SET", "maxmemory", "1");

    test("a new claim is refused and leaves nothing", async () => {
      const lockClient = await fixture.open();
      const [holder, refusedClaim] = [makeClaim("key"), makeClaim("key")];
      await lockClient.claimHeld(holder);
      const before = (await fixture.keys()).sort();
      await fillMemory();
      await expect(lockClient.claim(refusedClaim)).rejects.toThrow(/OOM/);
      await expect(lockClient.claim(makeClaim("another"))).rejects.toThrow(/OOM/);
      expect((await fixture.keys()).sort()).toEqual(before);
      expect((await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
      await lockClient.driver.release(toReleases(holder));
    });

    test("a holder renews and releases, its release is remembered, and the next is granted", async () => {
      const [lockClient, other] = [await fixture.open(), await fixture.open()];
      const [holder, waiter] = [makeClaim("key", { ttlMs: 4_000 }), makeClaim("key")];
      await lockClient.claimHeld(holder);
      await other.claim(waiter);
      await until(
        async () =>
          (await lockClient.driver.list({ key: "key" }, { max: 1 })).items.some(
            ({ answer }) => answer.state === "held" && answer.remainingMs < 3_400,
          ),
        {
          within: 5_000,
          what: "a lease that is old enough to be extended",
        },
      );
      await fillMemory();
      const answer = await lockClient.renewOnce(holder);
      expect(answer.state === "held" && answer.remainingMs > 3_900).toBe(true);
      expect(await lockClient.driver.release([{ claim: holder, hasUnansweredClaim: true }])).toEqual([true]);
      expect(await lockClient.driver.release([{ claim: holder, hasUnansweredClaim: true }])).toEqual([false]);
      expect((await other.renewOnce(waiter)).state).toBe("held");
      await until(() => other.pushes.some(({ id }) => id === waiter.id), { within: 5_000, what: "the push" });
      await other.driver.release(toReleases(waiter));
    });
  });

  test("a refused grant is not published", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [holder, waiter, laterClaim] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
    await lockClient.claimHeld(holder);
    await other.claim(waiter);
    await lockClient.claim(laterClaim);
    // the lease has ended: whoever asks next makes the grant
    await fixture.admin.hset(fixture.hashOf("key"), "k:key", "F");
    await fixture.admin.hdel(fixture.hashOf("key"), `c:${holder.id}`);
    // refuses every write, where full memory refuses only those that may take some
    await fixture.admin.config("SET", "min-replicas-to-write", "1");
    await expect(lockClient.renewOnce(laterClaim)).rejects.toThrow(/NOREPLICAS/);
    await fixture.admin.config("SET", "min-replicas-to-write", "0");
    expect((await lockClient.renewOnce(laterClaim)).state).toBe("waiting");
    const { token } = await other.waitForGrant(waiter);
    const grant = await until(() => other.pushes.find(({ answer }) => answer?.state === "held"), {
      within: 5_000,
      what: "the push",
    });
    expect(grant).toMatchObject({ id: waiter.id, answer: { token } });
    await other.driver.release(toReleases(waiter, laterClaim));
    await lockClient.driver.release(toReleases(holder)); // which was deleted, but for its record
  });

  test("only as many claims pass an unreachable waiter as leave it room, except for the last", async () => {
    const [unreachable, reachable] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
    const makeSharedClaim = (permits: number): ReturnType<typeof makeClaim> =>
      makeClaim([{ key: "key", permits, limit: 3 }]);
    const [holder, unreachableClaim, first, second, third] = [
      makeSharedClaim(3),
      makeSharedClaim(2),
      makeSharedClaim(1),
      makeSharedClaim(1),
      makeSharedClaim(1),
    ];
    await reachable.claimHeld(holder);
    await unreachable.claim(unreachableClaim);
    for (const claim of [first, second, third]) await reachable.claim(claim);
    await fixture.breakSubscribers();
    await until(() => reachable.pushes.some(({ id }) => id === null), { within: 5_000, what: "the inbox to be back" });
    await reachable.driver.release(toReleases(holder));
    const views = (await reachable.driver.list({ prefix: "key" }, { max: 10 })).items;
    expect(views.map(({ answer }) => answer.state)).toEqual(["held", "held", "waiting", "waiting"]);
    await reachable.driver.release(toReleases(unreachableClaim, first, second, third));
  });

  test("a waiter asks again when the lease in front of the queue may end", async () => {
    const lockClient = await fixture.open();
    const holder = makeClaim([{ key: "key", permits: 1, limit: ALL_PERMITS }]);
    const [frontClaim, laterClaim] = [makeClaim("key", { ttlMs: 2_000 }), makeClaim("key")];
    await lockClient.claimHeld(holder);
    await lockClient.claim(frontClaim);
    const answer = await lockClient.claim(laterClaim);
    expect(answer.state === "waiting" && answer.recheckMs <= 2_000).toBe(true);
    await lockClient.driver.release(toReleases(holder, frontClaim, laterClaim));
  });

  test("an answer without an extension has the remaining lease", async () => {
    const lockClient = await fixture.open();
    const claims = [makeClaim("key"), makeClaim("key")];
    for (const claim of claims) await lockClient.claim(claim);
    for (const claim of claims) {
      const remainingMs = async (): Promise<number> => {
        const answer = await lockClient.renewOnce(claim);
        return answer.state === "none" ? Number.NaN : answer.remainingMs;
      };
      await expect.poll(remainingMs, { timeout: 5_000 }).toBeLessThan(60_000);
    }
    await lockClient.driver.release(toReleases(...claims));
  });

  test("grants are pushed to the client that renewed the claim last", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const claim = makeClaim("key", { ttlMs: 4_000 });
    const { token } = await lockClient.claimHeld(claim);
    const left = async (): Promise<number> => {
      const answer = await other.renewOnce(claim);
      return answer.state === "held" ? answer.remainingMs : Number.NaN;
    };
    await until(async () => (await left()) < 3_900, { within: 5_000, what: "a lease that is older" });
    await until(async () => (await left()) > 3_900, { within: 5_000, what: "a lease that was extended" });
    await lockClient.driver.revoke?.([{ key: "key", token, now: false }]);
    await expect.poll(() => other.pushes.map(({ id }) => id), { timeout: 5_000 }).toContain(claim.id);
    await lockClient.driver.release(toReleases(claim));
  });

  test("a release reports whether its entry existed, and leaves its neighbours", async () => {
    const lockClient = await fixture.open();
    const makeSharedClaim = (): ReturnType<typeof makeClaim> => makeClaim([{ key: "key", permits: 1, limit: 3 }]);
    const [endedClaim, first, second] = [makeClaim("key"), makeSharedClaim(), makeSharedClaim()];
    await lockClient.claimHeld(endedClaim);
    await fixture.admin.hdel(fixture.hashOf("key"), "k:key");
    expect(await lockClient.driver.release(toReleases(endedClaim))).toEqual([false]);
    const shortClaim = makeClaim("key", { ttlMs: 100 });
    await lockClient.claimHeld(shortClaim);
    await until(async () => (await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items.length === 0, {
      within: 5_000,
      what: "its end",
    });
    expect(await lockClient.driver.release(toReleases(shortClaim))).toEqual([false]);
    await lockClient.claimHeld(first);
    await lockClient.claimHeld(second);
    expect(await lockClient.driver.release(toReleases(first))).toEqual([true]);
    expect((await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
    expect(await lockClient.driver.release(toReleases(second))).toEqual([true]);
  });

  test("a grant is not published on a replica, where an inbox may remain", async () => {
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(server().port)]);
    const subscriber = new Redis(replica.port, "127.0.0.1");
    const messages: string[] = [];
    try {
      const isThere = async (): Promise<boolean> => /master_link_status:up/.test(await subscriber.info("replication"));
      await until(isThere, { within: 10_000, what: "the replica" });
      subscriber.on("pmessage", (_, __, message) => messages.push(message));
      await subscriber.psubscribe("*");
      const [lockClient, other] = [await fixture.open(), await fixture.open()];
      const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
      await lockClient.claimHeld(holder);
      await other.claim(waiter);
      // what is published beside scripts is passed on, in order
      const markLog = async (name: string): Promise<void> => {
        await fixture.admin.publish(name, name);
        await until(() => messages.includes(name), { within: 5_000, what: name });
      };
      await markLog("before");
      await lockClient.driver.release(toReleases(holder));
      await until(() => other.pushes.some(({ id }) => id === waiter.id), { within: 5_000, what: "the push" });
      await markLog("after");
      expect(messages.slice(messages.indexOf("before"))).toEqual(["before", "after"]);
      await other.driver.release(toReleases(waiter));
    } finally {
      subscriber.disconnect();
      await replica.stop();
    }
  });
});
