/** The cost of the scripts, and what they must not publish or refuse. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { until } from "../../support/until.ts";

withRedis((server) => {
  let scene: RedisFixture;
  beforeEach(() => {
    scene = createRedisFixture(server().port);
  });
  afterEach(async () => {
    await scene.admin.config("SET", "maxmemory", "0", "min-replicas-to-write", "0");
    await scene.close();
  });

  /** Commands executed in scripts since the last call, by name. */
  const commands = async (): Promise<Record<string, number>> => {
    const stats = await scene.admin.info("commandstats");
    await scene.admin.config("RESETSTAT");
    const counts = [...stats.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].map(([, name = "", calls]) => [
      name,
      Number(calls),
    ]);
    return Object.fromEntries(counts.filter(([name]) => !/config|info|evalsha|ping|publish/.test(String(name))));
  };
  const sumOf = (counts: Record<string, number>): number =>
    Object.values(counts).reduce((sum, count) => sum + count, 0);
  /** An id for which claim.lua does not scan the index. */
  const quiet = (key: string): ReturnType<typeof makeClaim> => {
    for (;;) {
      const claim = makeClaim(key);
      if (claim.id.charCodeAt(claim.id.length - 1) % 8 !== 0) return claim;
    }
  };

  test("acquire and release of a free key take 10 commands and 6", async () => {
    const one = await scene.open();
    const claim = quiet("key");
    await commands();
    await one.claimHeld(claim);
    expect(sumOf(await commands())).toBe(10);
    await one.driver.release(toReleases(claim));
    expect(sumOf(await commands())).toBe(6);
  });

  test("a hand-off to an exclusive waiter takes 13 commands and one publication", async () => {
    const [one, other] = [await scene.open(), await scene.open()];
    const [holder, waiter] = [quiet("key"), quiet("key")];
    await one.claimHeld(holder);
    await other.claim(waiter);
    await commands();
    await one.driver.release(toReleases(holder));
    const stats = await scene.admin.info("commandstats");
    expect(Number(/^cmdstat_publish:calls=(\d+)/m.exec(stats)?.[1])).toBe(1);
    expect(sumOf(await commands())).toBe(13);
    await other.driver.release(toReleases(waiter));
  });

  test("a release that grants another waiter of the same client answers with it: nothing is published", async () => {
    const one = await scene.open();
    const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
    await one.claimHeld(holder);
    await one.claim(waiter);
    await scene.admin.config("RESETSTAT");
    expect(await one.driver.release(toReleases(holder))).toEqual([true]);
    expect(one.pushes.at(-1)).toMatchObject({ id: waiter.id, answer: { state: "held" } });
    expect(await scene.admin.info("commandstats")).not.toContain("cmdstat_publish");
    expect((await one.renewOnce(waiter)).state).toBe("held");
    await one.driver.release(toReleases(waiter));
  });

  test("a release that is answered too late makes its process ask about its waiters", async () => {
    const one = await scene.open(
      redis(() => new Redis(server().port, "127.0.0.1"), { prefix: scene.prefix, commandTimeoutMs: 1_000 }),
    );
    const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
    await one.claimHeld(holder);
    await one.claim(waiter);
    server().signal("SIGSTOP");
    try {
      await expect(one.driver.release(toReleases(holder))).rejects.toThrow("no answer within 1000 ms");
    } finally {
      server().signal("SIGCONT");
    }
    await until(() => one.pushes.some(({ id }) => id === null), { within: 5_000, what: "a recheck for all" });
    // a call may be abandoned again
    const asked = async (): Promise<boolean> => (await one.renewOnce(waiter).catch(() => null))?.state === "held";
    await until(asked, { within: 5_000, what: "its answer" });
    await one.driver.release(toReleases(waiter));
  });

  describe("when memory is full", () => {
    const fill = (): Promise<unknown> => scene.admin.config("SET", "maxmemory", "1");

    test("a new claim is refused and leaves nothing", async () => {
      const one = await scene.open();
      const [holder, refused] = [makeClaim("key"), makeClaim("key")];
      await one.claimHeld(holder);
      const before = (await scene.keys()).sort();
      await fill();
      await expect(one.claim(refused)).rejects.toThrow(/OOM/);
      await expect(one.claim(makeClaim("another"))).rejects.toThrow(/OOM/);
      expect((await scene.keys()).sort()).toEqual(before);
      expect((await one.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
      await one.driver.release(toReleases(holder));
    });

    test("a holder renews and releases, its release is remembered, and the next is granted", async () => {
      const [one, other] = [await scene.open(), await scene.open()];
      const [holder, waiter] = [makeClaim("key", { ttlMs: 4_000 }), makeClaim("key")];
      await one.claimHeld(holder);
      await other.claim(waiter);
      await until(
        async () =>
          (await scene.admin.pttl((await scene.keys()).find((key) => key.includes(`c:${holder.id}`)) ?? "")) < 7_800,
        {
          within: 5_000,
          what: "a lease that is old enough to be extended",
        },
      );
      await fill();
      const answer = await one.renewOnce(holder);
      expect(answer.state === "held" && answer.remainingMs > 3_900).toBe(true);
      expect(await one.driver.release([{ claim: holder, hasUnansweredClaim: true }])).toEqual([true]);
      expect(await one.driver.release([{ claim: holder, hasUnansweredClaim: true }])).toEqual([false]);
      expect((await other.renewOnce(waiter)).state).toBe("held");
      await until(() => other.pushes.some(({ id }) => id === waiter.id), { within: 5_000, what: "the push" });
      await other.driver.release(toReleases(waiter));
    });
  });

  test("a refused grant is not published", async () => {
    const [one, other] = [await scene.open(), await scene.open()];
    const [holder, waiter, behind] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
    await one.claimHeld(holder);
    await other.claim(waiter);
    await one.claim(behind);
    await scene.admin.del((await scene.keys()).filter((key) => key.endsWith(":a:key")));
    // refuses every write, where full memory refuses only those that may take some
    await scene.admin.config("SET", "min-replicas-to-write", "1");
    await expect(one.renewOnce(behind)).rejects.toThrow(/NOREPLICAS/);
    await scene.admin.config("SET", "min-replicas-to-write", "0");
    expect((await one.renewOnce(behind)).state).toBe("waiting");
    const { token } = await other.waitForGrant(waiter);
    const grant = await until(() => other.pushes.find(({ answer }) => answer?.state === "held"), {
      within: 5_000,
      what: "the push",
    });
    expect(grant).toMatchObject({ id: waiter.id, answer: { token } });
    await other.driver.release(toReleases(waiter, behind));
    await one.driver.release(toReleases(holder)); // which was deleted, but for its record
  });

  test("only as many claims pass an unreachable waiter as leave it room, except for the last", async () => {
    const [lost, well] = [await scene.openWithFragileSubscriber(), await scene.open()];
    const share = (permits: number): ReturnType<typeof makeClaim> => makeClaim([{ key: "key", permits, limit: 3 }]);
    const [holder, away, first, second, third] = [share(3), share(2), share(1), share(1), share(1)];
    await well.claimHeld(holder);
    await lost.claim(away);
    for (const claim of [first, second, third]) await well.claim(claim);
    await scene.breakSubscribers();
    await until(() => well.pushes.some(({ id }) => id === null), { within: 5_000, what: "the inbox to be back" });
    await well.driver.release(toReleases(holder));
    const views = (await well.driver.list({ prefix: "key" }, { max: 10 })).items;
    expect(views.map(({ answer }) => answer.state)).toEqual(["held", "held", "waiting", "waiting"]);
    await well.driver.release(toReleases(away, first, second, third));
  });

  test("a waiter asks again when the lease in front of the queue may end", async () => {
    const one = await scene.open();
    const [holder, front, behind] = [makeClaim("key"), makeClaim("key", { ttlMs: 2_000 }), makeClaim("key")];
    await one.claimHeld(holder);
    await one.claim(front);
    const answer = await one.claim(behind);
    expect(answer.state === "waiting" && answer.recheckMs <= 2_000).toBe(true);
    await one.driver.release(toReleases(holder, front, behind));
  });

  test("an answer without an extension has the remaining lease", async () => {
    const one = await scene.open();
    const claims = [makeClaim("key"), makeClaim("key")];
    for (const claim of claims) await one.claim(claim);
    for (const claim of claims) {
      const remainingMs = async (): Promise<number> => {
        const answer = await one.renewOnce(claim);
        return answer.state === "none" ? Number.NaN : answer.remainingMs;
      };
      await expect.poll(remainingMs, { timeout: 5_000 }).toBeLessThan(60_000);
    }
    await one.driver.release(toReleases(...claims));
  });

  test("grants are pushed to the client that renewed the claim last", async () => {
    const [one, other] = [await scene.open(), await scene.open()];
    const claim = makeClaim("key", { ttlMs: 4_000 });
    const { token } = await one.claimHeld(claim);
    const left = async (): Promise<number> => {
      const answer = await other.renewOnce(claim);
      return answer.state === "held" ? answer.remainingMs : Number.NaN;
    };
    await until(async () => (await left()) < 3_900, { within: 5_000, what: "a lease that is older" });
    await until(async () => (await left()) > 3_900, { within: 5_000, what: "a lease that was extended" });
    await one.driver.revoke?.([{ key: "key", token, now: false }]);
    await expect.poll(() => other.pushes.map(({ id }) => id), { timeout: 5_000 }).toContain(claim.id);
    await one.driver.release(toReleases(claim));
  });

  test("a release reports whether its entry existed, and leaves its neighbours", async () => {
    const one = await scene.open();
    const share = (): ReturnType<typeof makeClaim> => makeClaim([{ key: "key", permits: 1, limit: 3 }]);
    const [gone, first, second] = [makeClaim("key"), share(), share()];
    await one.claimHeld(gone);
    await scene.admin.del((await scene.keys()).filter((key) => key.endsWith(":a:key")));
    expect(await one.driver.release(toReleases(gone))).toEqual([false]);
    const short = makeClaim("key", { ttlMs: 100 });
    await one.claimHeld(short);
    await until(async () => (await one.driver.list({ prefix: "key" }, { max: 10 })).items.length === 0, {
      within: 5_000,
      what: "its end",
    });
    expect(await one.driver.release(toReleases(short))).toEqual([false]);
    await one.claimHeld(first);
    await one.claimHeld(second);
    expect(await one.driver.release(toReleases(first))).toEqual([true]);
    expect((await one.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
    expect(await one.driver.release(toReleases(second))).toEqual([true]);
  });

  test("a grant is not published on a replica, where an inbox may remain", async () => {
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(server().port)]);
    const ears = new Redis(replica.port, "127.0.0.1");
    const heard: string[] = [];
    try {
      const isThere = async (): Promise<boolean> => /master_link_status:up/.test(await ears.info("replication"));
      await until(isThere, { within: 10_000, what: "the replica" });
      ears.on("pmessage", (_, __, message) => heard.push(message));
      await ears.psubscribe("*");
      const [one, other] = [await scene.open(), await scene.open()];
      const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
      await one.claimHeld(holder);
      await other.claim(waiter);
      // what is published beside scripts is passed on, in order
      const mark = async (name: string): Promise<void> => {
        await scene.admin.publish(name, name);
        await until(() => heard.includes(name), { within: 5_000, what: name });
      };
      await mark("before");
      await one.driver.release(toReleases(holder));
      await until(() => other.pushes.some(({ id }) => id === waiter.id), { within: 5_000, what: "the push" });
      await mark("after");
      expect(heard.slice(heard.indexOf("before"))).toEqual(["before", "after"]);
      await other.driver.release(toReleases(waiter));
    } finally {
      ears.disconnect();
      await replica.stop();
    }
  });
});
