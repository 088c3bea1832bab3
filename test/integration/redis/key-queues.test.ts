import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, withinTime } from "../../support/stores/redis-fixture.ts";

const LONG_MS = 15_000;
/** How long an unreachable waiter has the lock when it is granted, unless it renews. */
const UNREACHABLE_LEASE_MS = 1_000;
/** The end of a claim's lease, with which its record begins, is later by this number. */
const LATER_CLAIM = `
  local record = redis.call('HGET', KEYS[1], ARGV[2])
  local expires = struct.unpack('>d', string.sub(record, 4)) + ARGV[1]
  return redis.call('HSET', KEYS[1], ARGV[2], string.sub(record, 1, 3) .. struct.pack('>d', expires) .. string.sub(record, 12))`;

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(() => fixture.close());

  const named = (kind: string, key: string, name = key): string =>
    `${fixture.prefix}:3:{${toBucket(key)}}:${kind}:${name}`;

  describe("an unreachable waiter", () => {
    test("loses a turn to the next, and keeps its entry before the others", async () => {
      const [unreachable, reachable] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
      const [holder, unreachableClaim, next, last] = [
        makeClaim("key"),
        makeClaim("key"),
        makeClaim("key"),
        makeClaim("key"),
      ];
      await reachable.claimHeld(holder);
      await unreachable.claim(unreachableClaim);
      await reachable.claim(next);
      await reachable.claim(last);
      await fixture.breakSubscribers();
      await until(() => reachable.pushes.some(({ id }) => id === null), {
        within: 5_000,
        what: "the inbox to be back",
      });
      await reachable.driver.release(toReleases(holder));
      expect((await reachable.renewOnce(next)).state).toBe("held");
      expect((await unreachable.renewOnce(unreachableClaim)).state).toBe("waiting");
      // it has renewed meanwhile, so it loses only turns, however much later
      await delay(1_050);
      await reachable.driver.release(toReleases(next));
      expect((await reachable.renewOnce(last)).state).toBe("held");
      await reachable.driver.release(toReleases(last));
      expect((await unreachable.waitForGrant(unreachableClaim)).state).toBe("held");
      await unreachable.driver.release(toReleases(unreachableClaim));
    });

    test("is removed from the queue when it is found unreachable again a second later without a call in between", async () => {
      const [unreachable, reachable] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
      const [holder, unreachableClaim, next, third] = [
        makeClaim("key"),
        makeClaim("key"),
        makeClaim("key"),
        makeClaim("key"),
      ];
      await reachable.claimHeld(holder);
      await unreachable.claim(unreachableClaim);
      await reachable.claim(next);
      await reachable.claim(third);
      await fixture.breakSubscribers();
      await until(() => reachable.pushes.some(({ id }) => id === null), {
        within: 5_000,
        what: "the inbox to be back",
      });
      await reachable.driver.release(toReleases(holder));
      await delay(1_050);
      expect((await reachable.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(3);
      await reachable.driver.release(toReleases(next));
      expect((await reachable.renewOnce(third)).state).toBe("held");
      expect((await reachable.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
      expect(await unreachable.renewOnce(unreachableClaim)).toEqual({ state: "none" });
      await reachable.driver.release(toReleases(third));
    });

    test("is granted for a second when its inbox is gone, and its renewal restores the full lease", async () => {
      const [unreachable, other] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
      await fixture.breakSubscribers();
      const { waiter, view, pushes, answer } = await withinTime(UNREACHABLE_LEASE_MS, async (name) => {
        const [holder, waiter] = [makeClaim(name), makeClaim(name)];
        await other.claimHeld(holder);
        await unreachable.claim(waiter);
        const pushCount = unreachable.pushes.length;
        await other.driver.release(toReleases(holder));
        const [view] = (await unreachable.driver.list({ prefix: name }, { max: 1 })).items;
        const pushes = unreachable.pushes.length - pushCount;
        return { waiter, view, pushes, answer: await unreachable.renewOnce(waiter) };
      });
      assert.ok(view?.answer.state === "held");
      expect(view.answer.remainingMs).toBeLessThanOrEqual(UNREACHABLE_LEASE_MS);
      expect(pushes).toBe(0);
      assert.ok(answer.state === "held");
      expect(answer.remainingMs).toBeGreaterThan(59_000);
      await unreachable.driver.release(toReleases(waiter));
    });

    test("costs a second when it is dead and alone in front", async () => {
      const [unreachable, reachable] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
      await fixture.breakSubscribers();
      const [ownClaim, waiting] = await withinTime(UNREACHABLE_LEASE_MS, async (name) => {
        const [holder, unreachableClaim, last] = [makeClaim(name), makeClaim(name), makeClaim(name)];
        await reachable.claimHeld(holder);
        await unreachable.claim(unreachableClaim);
        await reachable.driver.release(toReleases(holder));
        return [last, await reachable.claim(last)] as const;
      });
      assert.ok(waiting.state === "waiting");
      expect(waiting.recheckMs).toBeLessThanOrEqual(UNREACHABLE_LEASE_MS);
      await delay(1_020);
      expect((await reachable.renewOnce(ownClaim)).state).toBe("held");
      await reachable.driver.release(toReleases(ownClaim));
    });

    test("loses no entry by a release while the inbox of its process, with 64 waiters, reconnects", async () => {
      const [crowded, reachable] = [await fixture.open(), await fixture.open()];
      const holder = makeClaim("key");
      await reachable.claimHeld(holder);
      const waiters = Array.from({ length: 64 }, () => makeClaim("key"));
      for (const waiter of waiters) await crowded.claim(waiter);
      const laterClaim = makeClaim("key");
      await reachable.claim(laterClaim);
      await Promise.all([fixture.breakSubscribers(), reachable.driver.release(toReleases(holder))]);
      const order: string[] = [];
      const claimsById = new Map<string, Claim>([...waiters, laterClaim].map((claim) => [claim.id, claim]));
      while (claimsById.size > 0) {
        const claims = [...claimsById.values()];
        const answers = await crowded.driver.renew(claims);
        for (const answer of answers) expect(answer?.state).toMatch(/held|waiting/);
        const held = claims.filter((_, index) => answers[index]?.state === "held");
        expect(held.length).toBe(1);
        order.push((held[0] as Claim).id);
        claimsById.delete((held[0] as Claim).id);
        await crowded.driver.release(toReleases(...held));
      }
      const inOrder = waiters.map(({ id }) => id);
      expect(order.filter((id) => id !== laterClaim.id)).toEqual(inOrder);
    });

    test("delays a release only as one of the first 32, even if 10,000 waiters are dead", {
      timeout: 60_000,
    }, async () => {
      const [unreachable, reachable] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
      const holder = makeClaim("key");
      await reachable.claimHeld(holder);
      const waiters = Array.from({ length: 10_000 }, () => makeClaim("key", { ttlMs: 20_000 }));
      for (let index = 0; index < waiters.length; index += 500) {
        await Promise.all(waiters.slice(index, index + 500).map((claim) => unreachable.claim(claim)));
      }
      // no call from it any more, not even a new subscription; and the others are subscribed again
      await unreachable.driver.close();
      const pushCount = reachable.pushes.length;
      await fixture.breakSubscribers();
      await until(() => reachable.pushes.length > pushCount, { within: 10_000, what: "the inbox to be back" });
      await fixture.admin.config("RESETSTAT");
      await reachable.driver.release(toReleases(holder));
      const stats = await fixture.admin.info("commandstats");
      const calls = [...stats.matchAll(/^cmdstat_[^:]+:calls=(\d+)/gm)].reduce(
        (sum, [, some]) => sum + Number(some),
        0,
      );
      expect(calls).toBeLessThan(500);
      expect(Number(/cmdstat_publish:calls=(\d+)/.exec(stats)?.[1])).toBeLessThanOrEqual(40);
      await fixture.admin.flushall();
    });
  });

  describe("a deletion in Redis by an operator", () => {
    test("of a queue makes its holder's answer none, and leaves no trace", async () => {
      const lockClient = await fixture.open();
      const claim = makeClaim("key");
      await lockClient.claimHeld(claim);
      await fixture.admin.hdel(fixture.hashOf("key"), "k:key");
      expect(await lockClient.renewOnce(claim)).toEqual({ state: "none" });
      const next = makeClaim("key");
      await lockClient.claimHeld(next);
      expect(await lockClient.driver.release(toReleases(claim))).toEqual([false]);
      expect(await lockClient.driver.release(toReleases(next))).toEqual([true]);
    });

    test("of a claim makes its answer none, and its entries go", async () => {
      const lockClient = await fixture.open();
      const hold = (key: string) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
      const [holder, waiter] = [makeClaim([hold("key"), hold("other")]), makeClaim("key")];
      await lockClient.claimHeld(holder);
      await lockClient.claim(waiter);
      await fixture.admin.hdel(fixture.hashOf("key"), `c:${holder.id}`);
      expect(await lockClient.renewOnce(holder)).toEqual({ state: "none" });
      expect((await lockClient.renewOnce(waiter)).state).toBe("held");
      await lockClient.driver.release(toReleases(waiter));
    });

    test("of an entry in one of its queues: a claim over several keys leaves the other queues", async () => {
      const lockClient = await fixture.open();
      const hold = (key: string) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
      const multiKeyClaim = makeClaim([hold("a"), hold("b")]);
      await lockClient.claimHeld(multiKeyClaim);
      await fixture.admin.del(named("a", "b"));
      expect(await lockClient.renewOnce(multiKeyClaim)).toEqual({ state: "none" });
      const claimA = makeClaim("a");
      await lockClient.claimHeld(claimA);
      await lockClient.driver.release(toReleases(claimA));
    });

    test("of the state of a key with waiters: they are served in order, by their rechecks", async () => {
      const lockClient = await fixture.open();
      const [holder, first, second] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
      await lockClient.claimHeld(holder);
      for (const waiter of [first, second]) await lockClient.claim(waiter);
      await fixture.admin.hdel(fixture.hashOf("key"), "k:key");
      expect((await lockClient.renewOnce(second)).state).toBe("waiting");
      expect((await lockClient.renewOnce(first)).state).toBe("held");
      expect(await lockClient.renewOnce(holder)).toEqual({ state: "none" });
      await lockClient.driver.release(toReleases(first, second));
    });

    test("of a claim's record: its release still frees its key", async () => {
      const lockClient = await fixture.open();
      const hold = (key: string) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
      const [claim, next] = [makeClaim([hold("key"), hold("other")]), makeClaim("key")];
      await lockClient.claimHeld(claim);
      await fixture.admin.hdel(fixture.hashOf("key"), `c:${claim.id}`);
      await lockClient.driver.release(toReleases(claim));
      expect(await lockClient.driver.claim(next)).toMatchObject({ state: "held" });
      await lockClient.driver.release(toReleases(next));
    });
  });

  describe("a step back of the store's clock", () => {
    // the same as all stored times being ahead
    const HOUR_MS = 3_600_000;

    test("lets no later claim pass an earlier one, and limits leases to their length", async () => {
      const lockClient = await fixture.open();
      const [holder, waiter, lateClaim] = [
        makeClaim("key", { ttlMs: 2_000 }),
        makeClaim("key"),
        makeClaim("key", { ttlMs: 30_000 }),
      ];
      await lockClient.claimHeld(holder);
      await lockClient.claim(waiter);
      const [entry] = await fixture.admin.zrange(named("w", "key"), "0", "0");
      const hash = fixture.hashOf("key");
      await fixture.admin.zincrby(named("w", "key"), HOUR_MS * 1_000, String(entry));
      await fixture.admin.hincrby(hash, "n", HOUR_MS * 1_000);
      for (const field of ["k:key", `c:${waiter.id}`]) await fixture.admin.eval(LATER_CLAIM, 1, hash, HOUR_MS, field);
      expect((await lockClient.claim(lateClaim)).state).toBe("waiting");
      const views = (await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items;
      expect(views.map(({ ttlMs }) => ttlMs)).toEqual([2_000, 60_000, 30_000]);
      await lockClient.waitForGrant(waiter);
      expect((await lockClient.renewOnce(lateClaim)).state).toBe("waiting");
      await lockClient.driver.release(toReleases(waiter, lateClaim));
    });

    test("the cut of a lease is written by the script that reads it, also by one that is refused", async () => {
      const lockClient = await fixture.open();
      const [holder, rival] = [makeClaim("key", { ttlMs: 2_000 }), makeClaim("key", { wait: false })];
      await lockClient.claimHeld(holder);
      await fixture.admin.eval(LATER_CLAIM, 1, fixture.hashOf("key"), HOUR_MS, "k:key");
      const readEnd = async (): Promise<number> =>
        ((await fixture.admin.hgetBuffer(fixture.hashOf("key"), "k:key")) as Buffer).readDoubleBE(3);
      const [seconds] = await fixture.admin.time();
      expect(await readEnd()).toBeGreaterThan((Number(seconds) + 3_000) * 1_000);
      expect(await lockClient.claim(rival)).toEqual({ state: "none" });
      expect(await readEnd()).toBeLessThan((Number(seconds) + 60) * 1_000);
      await lockClient.driver.release(toReleases(holder));
    });

    test("lets no token fall", async () => {
      const lockClient = await fixture.open();
      const [first, second] = [makeClaim("key", { tokenCount: 64 }), makeClaim("key")];
      const { token } = await lockClient.claimHeld(first);
      await lockClient.driver.release(toReleases(first));
      const hash = fixture.hashOf("key");
      expect(await fixture.admin.hget(hash, "n")).toBe(String(token + 63n));
      const aheadToken = token + BigInt(HOUR_MS) * 1_000n;
      await fixture.admin.hset(hash, "n", String(aheadToken));
      expect((await lockClient.claimHeld(second)).token).toBe(aheadToken + 1n);
      await lockClient.driver.release(toReleases(second));
    });
  });

  describe("a lease", () => {
    test("of a waiter that expired unnoticed grants it nothing: the next waiter is granted, in the same trip", async () => {
      const [lockClient, other] = [await fixture.open(), await fixture.open()];
      const [holder, silentWaiter, next] = [makeClaim("key"), makeClaim("key", { ttlMs: 100 }), makeClaim("key")];
      await lockClient.claimHeld(holder);
      await lockClient.claim(silentWaiter);
      await other.claim(next);
      await delay(150);
      await lockClient.driver.release(toReleases(holder));
      await until(() => other.pushes.length > 0, { within: 5_000, what: "the push" });
      expect(other.pushes[0]?.id).toBe(next.id);
      expect(lockClient.pushes).toEqual([]);
      await other.driver.release(toReleases(next));
    });

    test("of a dead waiter that does not fit delays no waiter that fits", async () => {
      const [lockClient, other] = [await fixture.open(), await fixture.open()];
      const sharedSpec = { key: "key", permits: 1, limit: ALL_PERMITS };
      const [reader, second, third] = [
        makeClaim([sharedSpec]),
        makeClaim([sharedSpec]),
        makeClaim([sharedSpec], { wait: false }),
      ];
      await lockClient.claimHeld(reader);
      await lockClient.claim(makeClaim("key", { ttlMs: 150 }));
      expect((await other.claim(second)).state).toBe("waiting");
      await delay(160);
      expect((await other.renewOnce(second)).state).toBe("held");
      await lockClient.claim(makeClaim("key", { ttlMs: 150 }));
      await delay(160);
      expect((await other.claim(third)).state).toBe("held");
      await lockClient.driver.release(toReleases(reader, second, third));
    });

    test("that is short ends no queue with longer ones in it", async () => {
      const lockClient = await fixture.open();
      const sharedSpec = { key: "key", permits: 1, limit: 3 };
      const [held, shortClaim] = [makeClaim([sharedSpec]), makeClaim([sharedSpec], { ttlMs: 100 })];
      await lockClient.claimHeld(held);
      await lockClient.claimHeld(shortClaim);
      expect(await fixture.admin.pttl(named("a", "key"))).toBeGreaterThan(50_000);
      await lockClient.driver.release(toReleases(held, shortClaim));
    });
  });

  describe("the keys left in Redis", () => {
    test("list a key that a claim over several reached by a grant like any other", async () => {
      const lockClient = await fixture.open();
      const hold = (key: string) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
      const [first, multiKeyClaim, laterClaim] = [makeClaim("a"), makeClaim([hold("a"), hold("b")]), makeClaim("b")];
      await lockClient.claimHeld(first);
      await lockClient.claim(multiKeyClaim);
      await lockClient.driver.release(toReleases(first));
      await lockClient.waitForGrant(multiKeyClaim);
      await lockClient.claim(laterClaim);
      expect(
        (await lockClient.driver.list({ prefix: "b" }, { max: 10 })).items.map(({ answer }) => answer.state),
      ).toEqual(["held", "waiting"]);
      await lockClient.driver.release(toReleases(multiKeyClaim, laterClaim));
    });

    test("have a time to live, except the layout number", async () => {
      const lockClient = await fixture.open();
      const hold = (key: string) => ({ key, permits: 1, limit: 3 });
      const claims = [
        makeClaim("a"),
        makeClaim("a"),
        makeClaim([hold("a"), hold("b")]),
        makeClaim("c"),
        makeClaim("d"),
      ];
      for (const claim of claims) await lockClient.claim(claim);
      await lockClient.driver.renew(claims);
      await lockClient.driver.release(
        claims.slice(0, 2).map((claim, index) => ({ claim, hasUnansweredClaim: index === 0 })),
      );
      const keys = await fixture.keys();
      expect(keys.length).toBeGreaterThan(6);
      for (const key of keys) {
        if (key !== `${fixture.prefix}:{00}:layout`) expect(await fixture.admin.pttl(key), key).toBeGreaterThan(0);
      }
      await lockClient.driver.release(toReleases(...claims));
    });

    test("are the counter of its bucket alone after a key is released", async () => {
      const lockClient = await fixture.open();
      for (let round = 0; round < 300; round++) {
        const claim = makeClaim(`key ${round}`);
        await lockClient.claimHeld(claim);
        await lockClient.driver.release(toReleases(claim));
      }
      const hashes = (await fixture.keys()).filter((key) => !key.endsWith(":layout"));
      for (const hash of hashes) expect((await fixture.admin.hkeys(hash)).sort()).toEqual(["e", "n"]);
    });

    /** Fields of keys and claims in all buckets. */
    const countFields = async (): Promise<number> => {
      let count = 0;
      for (const hash of (await fixture.keys()).filter((key) => key.endsWith(":h")))
        count += (await fixture.admin.hkeys(hash)).filter((field) => /^[kcm]:/.test(field)).length;
      return count;
    };

    test("lose the fields of claims that ended unnoticed in time, and no others", { timeout: LONG_MS }, async () => {
      const lockClient = await fixture.open();
      // all in one bucket, as many as the keys of a busy store have
      const names = Array.from({ length: 60_000 }, (_, index) => `key ${index}`).filter(
        (key) => toBucket(key) === "00",
      );
      const [left, kept, fresh] = [names.slice(0, 60), names.slice(60, 80), names.slice(80, 90)];
      const both = (key: string, index: number) => [
        { key, permits: 1, limit: 2 },
        { key: `${names[100 + index]}`, permits: ALL_PERMITS, limit: ALL_PERMITS },
      ];
      // every form: a holder, two that share, one of several keys, waiters behind each, a tombstone
      for (const [index, key] of left.entries()) {
        const ttlMs = 100 + (index % 3);
        const first = [makeClaim(key, { ttlMs }), makeClaim(both(key, index), { ttlMs })][index % 2] as Claim;
        await lockClient.claim(first);
        if (index % 3 > 0) await lockClient.claim(makeClaim([{ key, permits: 1, limit: 2 }], { ttlMs }));
        if (index % 3 > 1) await lockClient.claim(makeClaim(key, { ttlMs }));
        if (index % 5 === 0) await lockClient.driver.release([{ claim: first, hasUnansweredClaim: true }]);
      }
      const keptClaims = kept.map((key) => makeClaim(key));
      for (const claim of keptClaims) await lockClient.claimHeld(claim);
      expect(await countFields()).toBeGreaterThan(120);
      let claimCount = 0;
      await until(
        async () => {
          for (const key of fresh) {
            const claim = makeClaim(key);
            await lockClient.claimHeld(claim);
            await lockClient.driver.release(toReleases(claim));
            claimCount++;
          }
          return (await countFields()) === kept.length;
        },
        { within: 60_000, what: "the end of all stale fields" },
      );
      expect(claimCount, "a day at one claim a second").toBeLessThan(86_400 / 4);
      expect((await fixture.keys()).filter((key) => /:[aw]:/.test(key))).toEqual([]);
      expect((await lockClient.driver.list({ prefix: "key" }, { max: 100 })).items.length).toBe(kept.length);
      await lockClient.driver.release(toReleases(...keptClaims));
    });

    test("live for two days, and as long as a lock in them is renewed", async () => {
      const lockClient = await fixture.open();
      const claim = makeClaim("key", { ttlMs: 400 });
      const hash = fixture.hashOf("key");
      const readRemainingMs = (): Promise<number> => fixture.admin.pttl(hash);
      await lockClient.claimHeld(claim);
      expect(Math.abs((await readRemainingMs()) - 2 * 86_400_000)).toBeLessThan(60_000);
      // as after an hour and after a day
      await fixture.admin.hincrby(hash, "e", -3_601);
      await fixture.admin.pexpire(hash, 80_000_000);
      await until(
        async () => (await lockClient.renewOnce(claim)).state === "held" && (await readRemainingMs()) > 86_400_000,
        {
          within: 5_000,
          what: "a renewal that keeps it",
        },
      );
      expect((await lockClient.driver.list({ key: "key" }, { max: 10 })).items.length).toBe(1);
      await lockClient.driver.release(toReleases(claim));
    });

    test("outlive a lease of weeks, and the entry of a waiter with one", async () => {
      const lockClient = await fixture.open();
      const ttlMs = 30 * 86_400_000;
      const [holder, waiter, shortWaiter] = [
        makeClaim("key", { ttlMs }),
        makeClaim("key", { ttlMs }),
        makeClaim("key"),
      ];
      for (const claim of [holder, waiter, shortWaiter]) await lockClient.claim(claim);
      for (const key of [fixture.hashOf("key"), named("w", "key")])
        expect(await fixture.admin.pttl(key), key).toBeGreaterThan(ttlMs);
      await lockClient.driver.release(toReleases(holder, waiter, shortWaiter));
    });

    test("are never scanned by a command", async () => {
      const lockClient = await fixture.open();
      const claims = Array.from({ length: 40 }, (_, index) => makeClaim(`key ${index % 7}`));
      await fixture.admin.config("RESETSTAT");
      for (const claim of claims) await lockClient.claim(claim);
      expect((await lockClient.driver.list({ prefix: "key" }, { max: 100 })).items.length).toBe(40);
      expect((await lockClient.driver.list({ prefix: "key 3" }, { max: 3 })).items.length).toBe(3);
      await lockClient.driver.release(toReleases(...claims));
      const stats = await fixture.admin.info("commandstats");
      expect(stats).not.toMatch(/cmdstat_(keys|scan|smembers|hgetall|hkeys|sort)/);
    });
  });
});
