import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { toBucket } from "../../../src/drivers/redis/script-codec.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim, withinTime } from "../../support/stores/redis-fixture.ts";
import { until } from "../../support/until.ts";

const LONG_MS = 15_000;
/** How long an unreachable waiter has the lock when it is granted, unless it renews. */
const UNREACHABLE_LEASE_MS = 1_000;
/** The end of a claim's lease, with which its record begins, is later by this number. */
const LATER_CLAIM = `
  local record = redis.call('GET', KEYS[1])
  local expires = struct.unpack('>d', record) + ARGV[1]
  return redis.call('SET', KEYS[1], struct.pack('>d', expires) .. string.sub(record, 9))`;

withRedis((server) => {
  let scene: RedisFixture;
  beforeEach(() => {
    scene = createRedisFixture(server().port);
  });
  afterEach(() => scene.close());

  const named = (kind: string, key: string, name = key): string =>
    `${scene.prefix}:1:{${toBucket(key)}}:${kind}:${name}`;

  describe("an unreachable waiter", () => {
    test("loses a turn to the next, and keeps its entry before the others", async () => {
      const [lost, well] = [await scene.openWithFragileSubscriber(), await scene.open()];
      const [holder, away, next, last] = [makeClaim("key"), makeClaim("key"), makeClaim("key"), makeClaim("key")];
      await well.claimHeld(holder);
      await lost.claim(away);
      await well.claim(next);
      await well.claim(last);
      await scene.breakSubscribers();
      await until(() => well.pushes.some(({ id }) => id === null), { within: 5_000, what: "the inbox to be back" });
      await well.driver.release(toReleases(holder));
      expect((await well.renewOnce(next)).state).toBe("held");
      expect((await lost.renewOnce(away)).state).toBe("waiting");
      // it has renewed meanwhile, so it loses only turns, however much later
      await delay(1_050);
      await well.driver.release(toReleases(next));
      expect((await well.renewOnce(last)).state).toBe("held");
      await well.driver.release(toReleases(last));
      expect((await lost.waitForGrant(away)).state).toBe("held");
      await lost.driver.release(toReleases(away));
    });

    test("is removed from the queue when it is found unreachable again a second later without a call in between", async () => {
      const [lost, well] = [await scene.openWithFragileSubscriber(), await scene.open()];
      const [holder, away, next, third] = [makeClaim("key"), makeClaim("key"), makeClaim("key"), makeClaim("key")];
      await well.claimHeld(holder);
      await lost.claim(away);
      await well.claim(next);
      await well.claim(third);
      await scene.breakSubscribers();
      await until(() => well.pushes.some(({ id }) => id === null), { within: 5_000, what: "the inbox to be back" });
      await well.driver.release(toReleases(holder));
      await delay(1_050);
      expect((await well.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(3);
      await well.driver.release(toReleases(next));
      expect((await well.renewOnce(third)).state).toBe("held");
      expect((await well.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
      expect(await lost.renewOnce(away)).toEqual({ state: "none" });
      await well.driver.release(toReleases(third));
    });

    test("is granted for a second when its inbox is gone, and its renewal restores the full lease", async () => {
      const [lost, other] = [await scene.openWithFragileSubscriber(), await scene.open()];
      await scene.breakSubscribers();
      const [away, view, pushes, answer] = await withinTime(UNREACHABLE_LEASE_MS, async (name) => {
        const [holder, waiter] = [makeClaim(name), makeClaim(name)];
        await other.claimHeld(holder);
        await lost.claim(waiter);
        const told = lost.pushes.length;
        await other.driver.release(toReleases(holder));
        const [first] = (await lost.driver.list({ prefix: name }, { max: 1 })).items;
        return [waiter, first, lost.pushes.length - told, await lost.renewOnce(waiter)] as const;
      });
      expect(view?.answer.state).toBe("held");
      expect(view?.answer.state === "held" && view.answer.remainingMs <= UNREACHABLE_LEASE_MS).toBe(true);
      expect(pushes).toBe(0);
      expect(answer.state === "held" && answer.remainingMs > 59_000).toBe(true);
      await lost.driver.release(toReleases(away));
    });

    test("costs a second when it is dead and alone in front", async () => {
      const [dead, well] = [await scene.openWithFragileSubscriber(), await scene.open()];
      await scene.breakSubscribers();
      const [mine, waiting] = await withinTime(UNREACHABLE_LEASE_MS, async (name) => {
        const [holder, away, last] = [makeClaim(name), makeClaim(name), makeClaim(name)];
        await well.claimHeld(holder);
        await dead.claim(away);
        await well.driver.release(toReleases(holder));
        return [last, await well.claim(last)] as const;
      });
      expect(waiting.state === "waiting" && waiting.recheckMs <= UNREACHABLE_LEASE_MS).toBe(true);
      await delay(1_020);
      expect((await well.renewOnce(mine)).state).toBe("held");
      await well.driver.release(toReleases(mine));
    });

    test("loses no entry by a release while the inbox of its process, with 64 waiters, reconnects", async () => {
      const [crowd, well] = [await scene.open(), await scene.open()];
      const holder = makeClaim("key");
      await well.claimHeld(holder);
      const waiters = Array.from({ length: 64 }, () => makeClaim("key"));
      for (const waiter of waiters) await crowd.claim(waiter);
      const later = makeClaim("key");
      await well.claim(later);
      await Promise.all([scene.breakSubscribers(), well.driver.release(toReleases(holder))]);
      const order: string[] = [];
      const all = new Map<string, Claim>([...waiters, later].map((claim) => [claim.id, claim]));
      while (all.size > 0) {
        const claims = [...all.values()];
        const answers = await crowd.driver.renew(claims);
        expect(answers.every((answer) => answer !== undefined && answer.state !== "none")).toBe(true);
        const held = claims.filter((_, at) => answers[at]?.state === "held");
        expect(held.length).toBe(1);
        order.push((held[0] as Claim).id);
        all.delete((held[0] as Claim).id);
        await crowd.driver.release(toReleases(...held));
      }
      const inOrder = waiters.map(({ id }) => id);
      expect(order.filter((id) => id !== later.id)).toEqual(inOrder);
    });

    test("delays a release only as one of the first 32, even if 10,000 waiters are dead", {
      timeout: 60_000,
    }, async () => {
      const [dead, well] = [await scene.openWithFragileSubscriber(), await scene.open()];
      const holder = makeClaim("key");
      await well.claimHeld(holder);
      const waiters = Array.from({ length: 10_000 }, () => makeClaim("key", { ttlMs: 20_000 }));
      for (let at = 0; at < waiters.length; at += 500) {
        await Promise.all(waiters.slice(at, at + 500).map((claim) => dead.claim(claim)));
      }
      // no call from it any more, not even a new subscription; and the others are subscribed again
      await dead.driver.close();
      const told = well.pushes.length;
      await scene.breakSubscribers();
      await until(() => well.pushes.length > told, { within: 10_000, what: "the inbox to be back" });
      await scene.admin.config("RESETSTAT");
      await well.driver.release(toReleases(holder));
      const stats = await scene.admin.info("commandstats");
      const calls = [...stats.matchAll(/^cmdstat_[^:]+:calls=(\d+)/gm)].reduce(
        (sum, [, some]) => sum + Number(some),
        0,
      );
      expect(calls).toBeLessThan(500);
      expect(Number(/cmdstat_publish:calls=(\d+)/.exec(stats)?.[1])).toBeLessThanOrEqual(40);
      await scene.admin.flushall();
    });
  });

  describe("a deletion in Redis by an operator", () => {
    test("of a queue makes its holder's answer none, and leaves no trace", async () => {
      const one = await scene.open();
      const claim = makeClaim("key");
      await one.claimHeld(claim);
      await scene.admin.del(named("a", "key"));
      expect(await one.renewOnce(claim)).toEqual({ state: "none" });
      const next = makeClaim("key");
      await one.claimHeld(next);
      expect(await one.driver.release(toReleases(claim))).toEqual([false]);
      expect(await one.driver.release(toReleases(next))).toEqual([true]);
    });

    test("of a claim makes its answer none, and its entries go", async () => {
      const one = await scene.open();
      const [holder, waiter] = [makeClaim("key"), makeClaim("key")];
      await one.claimHeld(holder);
      await one.claim(waiter);
      await scene.admin.del(named("c", "key", holder.id));
      expect(await one.renewOnce(holder)).toEqual({ state: "none" });
      expect((await one.renewOnce(waiter)).state).toBe("held");
      await one.driver.release(toReleases(waiter));
    });

    test("of an entry in one of its queues: a claim over several keys leaves the other queues", async () => {
      const one = await scene.open();
      const hold = (key: string) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
      const both = makeClaim([hold("a"), hold("b")]);
      await one.claimHeld(both);
      await scene.admin.del(named("a", "b"));
      expect(await one.renewOnce(both)).toEqual({ state: "none" });
      const a = makeClaim("a");
      await one.claimHeld(a);
      await one.driver.release(toReleases(a));
    });

    test("of a claim's record: its release still frees its key", async () => {
      const one = await scene.open();
      const [claim, next] = [makeClaim("key"), makeClaim("key")];
      await one.claimHeld(claim);
      await scene.admin.del(named("c", "key", claim.id));
      await one.driver.release(toReleases(claim));
      expect(await one.driver.claim(next)).toMatchObject({ state: "held" });
      await one.driver.release(toReleases(next));
    });
  });

  describe("a step back of the store's clock", () => {
    // the same as all stored times being ahead
    const HOUR_MS = 3_600_000;

    test("lets no later claim pass an earlier one, and limits leases to their length", async () => {
      const one = await scene.open();
      const [holder, waiter, late] = [
        makeClaim("key", { ttlMs: 2_000 }),
        makeClaim("key"),
        makeClaim("key", { ttlMs: 30_000 }),
      ];
      await one.claimHeld(holder);
      await one.claim(waiter);
      for (const [kind, ahead] of [
        ["a", HOUR_MS],
        ["w", HOUR_MS * 1_000],
      ] as const) {
        const [place] = await scene.admin.zrange(named(kind, "key"), "0", "0");
        await scene.admin.zincrby(named(kind, "key"), ahead, String(place));
      }
      for (const { id } of [holder, waiter]) await scene.admin.eval(LATER_CLAIM, 1, named("c", "key", id), HOUR_MS);
      // and what Redis itself would end by its clock lives longer, too
      for (const key of (await scene.keys()).filter((name) => /:[awc]:/.test(name))) {
        await scene.admin.pexpire(key, HOUR_MS);
      }
      expect((await one.claim(late)).state).toBe("waiting");
      const views = (await one.driver.list({ prefix: "key" }, { max: 10 })).items;
      expect(views.map(({ ttlMs }) => ttlMs)).toEqual([2_000, 60_000, 30_000]);
      await one.waitForGrant(waiter);
      expect((await one.renewOnce(late)).state).toBe("waiting");
      await one.driver.release(toReleases(waiter, late));
    });

    test("lets no token fall", async () => {
      const one = await scene.open();
      const [first, second] = [makeClaim("key", { tokenCount: 64 }), makeClaim("key")];
      const { token } = await one.claimHeld(first);
      await one.driver.release(toReleases(first));
      const counter = `${scene.prefix}:1:{${toBucket("key")}}:n`;
      expect(await scene.admin.get(counter)).toBe(String(token + 63n));
      const ahead = token + BigInt(HOUR_MS) * 1_000n;
      await scene.admin.set(counter, String(ahead), "PX", 100_000);
      expect((await one.claimHeld(second)).token).toBe(ahead + 1n);
      await one.driver.release(toReleases(second));
    });
  });

  describe("a lease", () => {
    test("of a waiter that expired unnoticed grants it nothing: the next waiter is granted, in the same trip", async () => {
      const [one, other] = [await scene.open(), await scene.open()];
      const [holder, quiet, next] = [makeClaim("key"), makeClaim("key", { ttlMs: 100 }), makeClaim("key")];
      await one.claimHeld(holder);
      await one.claim(quiet);
      await other.claim(next);
      await delay(150);
      await one.driver.release(toReleases(holder));
      await until(() => other.pushes.length > 0, { within: 5_000, what: "the push" });
      expect(other.pushes[0]?.id).toBe(next.id);
      expect(one.pushes).toEqual([]);
      await other.driver.release(toReleases(next));
    });

    test("of a dead waiter that does not fit delays no waiter that fits", async () => {
      const [one, other] = [await scene.open(), await scene.open()];
      const share = { key: "key", permits: 1, limit: ALL_PERMITS };
      const [reader, second, third] = [makeClaim([share]), makeClaim([share]), makeClaim([share], { wait: false })];
      await one.claimHeld(reader);
      await one.claim(makeClaim("key", { ttlMs: 150 }));
      expect((await other.claim(second)).state).toBe("waiting");
      await delay(160);
      expect((await other.renewOnce(second)).state).toBe("held");
      await one.claim(makeClaim("key", { ttlMs: 150 }));
      await delay(160);
      expect((await other.claim(third)).state).toBe("held");
      await one.driver.release(toReleases(reader, second, third));
    });

    test("that is short ends no queue with longer ones in it", async () => {
      const one = await scene.open();
      const share = { key: "key", permits: 1, limit: 3 };
      const [held, short] = [makeClaim([share]), makeClaim([share], { ttlMs: 100 })];
      await one.claimHeld(held);
      await one.claimHeld(short);
      expect(await scene.admin.pttl(named("a", "key"))).toBeGreaterThan(50_000);
      await one.driver.release(toReleases(held, short));
    });
  });

  describe("the keys left in Redis", () => {
    test("list a key that a claim over several reached by a grant like any other", async () => {
      const one = await scene.open();
      const hold = (key: string) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
      const [first, both, behind] = [makeClaim("a"), makeClaim([hold("a"), hold("b")]), makeClaim("b")];
      await one.claimHeld(first);
      await one.claim(both);
      await one.driver.release(toReleases(first));
      await one.waitForGrant(both);
      await one.claim(behind);
      expect((await one.driver.list({ prefix: "b" }, { max: 10 })).items.map(({ answer }) => answer.state)).toEqual([
        "held",
        "waiting",
      ]);
      await one.driver.release(toReleases(both, behind));
    });

    test("have a time to live, except the layout number", async () => {
      const one = await scene.open();
      const hold = (key: string) => ({ key, permits: 1, limit: 3 });
      const claims = [
        makeClaim("a"),
        makeClaim("a"),
        makeClaim([hold("a"), hold("b")]),
        makeClaim("c"),
        makeClaim("d"),
      ];
      for (const claim of claims) await one.claim(claim);
      await one.driver.renew(claims);
      await one.driver.release(claims.slice(0, 2).map((claim, index) => ({ claim, hasUnansweredClaim: index === 0 })));
      const keys = await scene.keys();
      expect(keys.length).toBeGreaterThan(8);
      for (const key of keys) {
        if (key !== `${scene.prefix}:{00}:layout`) expect(await scene.admin.pttl(key), key).toBeGreaterThan(0);
      }
      await one.driver.release(toReleases(...claims));
    });

    test("are the counter of its bucket alone after a key is released", async () => {
      const one = await scene.open();
      for (let round = 0; round < 300; round++) {
        const claim = makeClaim(`key ${round}`);
        await one.claimHeld(claim);
        await one.driver.release(toReleases(claim));
      }
      const others = (await scene.keys()).filter((key) => !/:n$|:layout$/.test(key));
      expect(others).toEqual([]);
    });

    test("drop keys whose claims expired unnoticed from the index in time, and no others", {
      timeout: LONG_MS,
    }, async () => {
      const one = await scene.open();
      const name = (at: number): string => `left ${at}`;
      const index = async (): Promise<number> => {
        const keys = (await scene.keys()).filter((key) => key.endsWith(":i"));
        let members = 0;
        for (const key of keys) members += await scene.admin.zcard(key);
        return members;
      };
      for (let at = 0; at < 300; at++) await one.claim(makeClaim(name(at), { ttlMs: 100 }));
      const kept = Array.from({ length: 20 }, (_, at) => makeClaim(`kept ${at}`));
      for (const claim of kept) await one.claimHeld(claim);
      await until(async () => (await one.driver.list({ prefix: "left" }, { max: 1_000 })).items.length === 0, {
        within: 5_000,
        what: "the end",
      });
      await until(
        async () => {
          for (let at = 0; at < 200; at++) {
            const claim = makeClaim(`new ${at}`);
            await one.claimHeld(claim);
            await one.driver.release(toReleases(claim));
          }
          return (await index()) < 120;
        },
        { within: 12_000, what: "a smaller index" },
      );
      expect((await one.driver.list({ prefix: "kept" }, { max: 100 })).items.length).toBe(20);
      await one.driver.release(toReleases(...kept));
    });

    test("keep the index for two hours, and as long as a renewed lock is in it", async () => {
      const one = await scene.open();
      const claim = makeClaim("key", { ttlMs: 400 });
      const index = `${scene.prefix}:1:{${toBucket("key")}}:i`;
      const left = (): Promise<number> => scene.admin.pttl(index);
      await one.claimHeld(claim);
      expect(Math.abs((await left()) - 7_200_000)).toBeLessThan(60_000);
      await scene.admin.pexpire(index, 1_000);
      await until(async () => (await one.renewOnce(claim)).state === "held" && (await left()) > 7_000_000, {
        within: 5_000,
        what: "a renewal that keeps it",
      });
      expect((await one.driver.list({ key: "key" }, { max: 10 })).items.length).toBe(1);
      await one.driver.release(toReleases(claim));
    });

    test("are never scanned by a command", async () => {
      const one = await scene.open();
      const claims = Array.from({ length: 40 }, (_, at) => makeClaim(`key ${at % 7}`));
      await scene.admin.config("RESETSTAT");
      for (const claim of claims) await one.claim(claim);
      expect((await one.driver.list({ prefix: "key" }, { max: 100 })).items.length).toBe(40);
      expect((await one.driver.list({ prefix: "key 3" }, { max: 3 })).items.length).toBe(3);
      await one.driver.release(toReleases(...claims));
      const stats = await scene.admin.info("commandstats");
      expect(stats).not.toMatch(/cmdstat_(keys|scan|smembers|hgetall|sort)/);
    });
  });
});
