/**
 * Waiters whose process is not subscribed at the moment (unreachable waiters), beside claims over several keys, permits
 * and readers: every granted claim fits. The state in Redis counts, not the clients' view.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Claim, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations, readStoreView } from "../../support/stores/redis-inspector.ts";

const exclusiveSpec = (key: string): LockSpec => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
const permitSpec = (permits: number, limit: number, key = "a"): LockSpec => ({ key, permits, limit });

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(() => fixture.close());

  /** The admitted entries of a key, in Redis. */
  const holders = async (key: string, ...claims: readonly Claim[]): Promise<number[]> => {
    const { entries } = await readStoreView(fixture.admin, fixture.prefix);
    const held = entries.filter((entry) => entry.key === key && entry.state === "held");
    return held.map(({ claim }) => claims.findIndex(({ id }) => claim.endsWith(id))).sort();
  };
  const readViolations = (): Promise<string[]> => findRedisViolations(fixture.admin, fixture.prefix);

  type Opened = Awaited<ReturnType<RedisFixture["open"]>>;
  /** Two reachable clients and an unreachable one. */
  const openUnreachable = async (
    placeClaims: (lost: Opened, reachable: Opened) => Promise<unknown>,
  ): Promise<readonly [Opened, Opened]> => {
    const [lostClient, reachableClient] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
    await placeClaims(lostClient, reachableClient);
    await fixture.breakSubscribers();
    await until(() => reachableClient.pushes.some(({ id }) => id === null), {
      within: 5_000,
      what: "the inbox to be back",
    });
    return [lostClient, reachableClient];
  };

  describe("a claim over several keys that passes an unreachable waiter", () => {
    test("holds its key alone", async () => {
      const [holder, lostWaiter, waiter] = [
        makeClaim("a"),
        makeClaim("a"),
        makeClaim([exclusiveSpec("a"), exclusiveSpec("b")]),
      ];
      const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
        await reachable.claimHeld(holder);
        await lost.claim(lostWaiter);
        await reachable.claim(waiter);
      });
      expect(await reachableClient.driver.release(toReleases(holder))).toEqual([true]);
      expect(await readViolations()).toEqual([]);
      expect(await holders("a", holder, lostWaiter, waiter)).toEqual([2]);
      expect((await reachableClient.renewOnce(waiter)).state).toBe("held");
      expect((await lostClient.renewOnce(lostWaiter)).state).toBe("waiting");
      // no claim made or released finds the key free meanwhile
      const lateClaim = makeClaim("a");
      expect((await reachableClient.claim(lateClaim)).state).toBe("waiting");
      await reachableClient.driver.release(toReleases(lateClaim));
      expect(await holders("a", holder, lostWaiter, waiter)).toEqual([2]);
      await reachableClient.driver.release(toReleases(waiter));
      expect((await lostClient.waitForGrant(lostWaiter)).state).toBe("held");
      expect(await readViolations()).toEqual([]);
      await lostClient.driver.release(toReleases(lostWaiter));
    });

    test("waits for its next key, and holds this one alone meanwhile", async () => {
      const [holder, lostWaiter, holderB] = [makeClaim("a"), makeClaim("a"), makeClaim("b")];
      const waiter = makeClaim([exclusiveSpec("a"), exclusiveSpec("b")]);
      const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
        await reachable.claimHeld(holder);
        await reachable.claimHeld(holderB);
        await lost.claim(lostWaiter);
        await reachable.claim(waiter);
      });
      await reachableClient.driver.release(toReleases(holder));
      expect(await readViolations()).toEqual([]);
      expect(await holders("a", holder, lostWaiter, waiter)).toEqual([2]);
      expect((await lostClient.renewOnce(lostWaiter)).state).toBe("waiting");
      await reachableClient.driver.release(toReleases(holderB));
      expect((await reachableClient.waitForGrant(waiter)).state).toBe("held");
      await reachableClient.driver.release(toReleases(waiter));
      await lostClient.waitForGrant(lostWaiter);
      await lostClient.driver.release(toReleases(lostWaiter));
    });

    test("leaves a semaphore within its limit", async () => {
      const holder = makeClaim([permitSpec(3, 3)]);
      const [lostWaiter, waiter] = [makeClaim([permitSpec(2, 3)]), makeClaim([permitSpec(2, 3), exclusiveSpec("b")])];
      const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
        await reachable.claimHeld(holder);
        await lost.claim(lostWaiter);
        await reachable.claim(waiter);
      });
      await reachableClient.driver.release(toReleases(holder));
      expect(await readViolations()).toEqual([]);
      expect(await holders("a", holder, lostWaiter, waiter)).toEqual([2]);
      await reachableClient.driver.release(toReleases(waiter));
      await lostClient.waitForGrant(lostWaiter);
      await lostClient.driver.release(toReleases(lostWaiter));
    });

    test("leaves readers and writers apart", async () => {
      const holder = makeClaim("a");
      const [lostWaiter, waiter] = [makeClaim("a"), makeClaim([permitSpec(1, ALL_PERMITS), exclusiveSpec("b")])];
      const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
        await reachable.claimHeld(holder);
        await lost.claim(lostWaiter);
        await reachable.claim(waiter);
      });
      await reachableClient.driver.release(toReleases(holder));
      expect(await readViolations()).toEqual([]);
      expect(await holders("a", holder, lostWaiter, waiter)).toEqual([2]);
      await reachableClient.driver.release(toReleases(waiter));
      await lostClient.waitForGrant(lostWaiter);
      await lostClient.driver.release(toReleases(lostWaiter));
    });
  });

  test("the entry that a removed waiter leaves in an earlier queue is free for others in the same call", async () => {
    const [holder, otherHolder] = [makeClaim([permitSpec(1, 3)]), makeClaim([permitSpec(1, 3)])];
    const holderB = makeClaim("b");
    const [lostWaiter, waiter] = [
      makeClaim([permitSpec(1, 3), exclusiveSpec("b")]),
      makeClaim([permitSpec(1, 3), exclusiveSpec("b")]),
    ];
    const otherClaim = makeClaim([permitSpec(1, 3)]);
    const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
      for (const claim of [holder, otherHolder, holderB]) await reachable.claimHeld(claim);
      await lost.claim(lostWaiter);
      for (const claim of [waiter, otherClaim]) await reachable.claim(claim);
    });
    await missedBefore(lostWaiter, 2);
    await removeHolders("b");
    await reachableClient.driver.release(toReleases(holder));
    expect(await holders("a", holder, otherHolder, lostWaiter, waiter, otherClaim)).toEqual([1, 3, 4]);
    expect((await reachableClient.renewOnce(waiter)).state).toBe("held");
    expect(await lostClient.renewOnce(lostWaiter)).toEqual({ state: "none" });
    await reachableClient.driver.release(toReleases(holderB, otherHolder, waiter, otherClaim));
  });

  test("only as many claims pass an unreachable waiter as leave it room", async () => {
    const holder = makeClaim([permitSpec(3, 3)]);
    const [lostWaiter, ...others] = [
      makeClaim([permitSpec(2, 3)]),
      ...["b", "c", "d"].map((key) => makeClaim([permitSpec(1, 3), exclusiveSpec(key)])),
    ] as const;
    const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
      await reachable.claimHeld(holder);
      await lost.claim(lostWaiter);
      for (const claim of others) await reachable.claim(claim);
    });
    await reachableClient.driver.release(toReleases(holder));
    expect(await readViolations()).toEqual([]);
    // with the first of them there is room for it, with two no more
    expect(await holders("a", holder, lostWaiter, ...others)).toEqual([2, 3]);
    await reachableClient.driver.release(toReleases(...others));
    await lostClient.waitForGrant(lostWaiter);
    await lostClient.driver.release(toReleases(lostWaiter));
  });

  test("a claim granted by its own call, after its turn in that call, is answered as granted", async () => {
    const lockClient = await fixture.open();
    const [holder, waiter] = [makeClaim([exclusiveSpec("a"), exclusiveSpec("b")]), makeClaim("a")];
    await lockClient.claimHeld(holder);
    await lockClient.claim(waiter);
    await fixture.admin.hdel(fixture.hashOf("a"), `c:${holder.id}`);
    expect((await lockClient.driver.renew([waiter, holder])).map((answer) => answer?.state)).toEqual(["held", "none"]);
    await lockClient.driver.release(toReleases(waiter));
  });

  test("a claim over several keys granted without a reachable client, and not renewed, is removed from all of them after a second", async () => {
    const [lostClient, other] = [await fixture.openWithFragileSubscriber(), await fixture.open()];
    const [holder, lostWaiter] = [makeClaim("b"), makeClaim([exclusiveSpec("a"), exclusiveSpec("b")])];
    await other.claimHeld(holder);
    await lostClient.claim(lostWaiter);
    await fixture.breakSubscribers();
    await other.driver.release(toReleases(holder));
    expect(await readViolations()).toEqual([]);
    const lateClaims = [makeClaim("a"), makeClaim("b")];
    for (const claim of lateClaims) expect((await other.claim(claim)).state).toBe("waiting");
    for (const claim of lateClaims) await other.waitForGrant(claim);
    await other.driver.release(toReleases(...lateClaims));
  });

  describe("the permits stored in Redis count, not the expected ones", () => {
    /** Puts the entry of a claim into the queue of a key, as a fault would. */
    async function plantEntry(claim: Claim, to: string, kind: "a" | "w"): Promise<string> {
      const [{ key, permits, limit }] = claim.locks;
      const line = fixture.hashOf(to).replace(/h$/, `${kind}:${to}`);
      const score = kind === "w" ? 1 : Date.now() + 60_000;
      await fixture.admin.zadd(line, score, `${toBucket(key)}${claim.id}:${permits}:${limit}:${String(claim.ttlMs)}`);
      await fixture.admin.pexpire(line, 60_000);
      return line;
    }

    test("a released claim with all permits may have shared them: the queue is checked", async () => {
      const lockClient = await fixture.open();
      const holder = makeClaim([exclusiveSpec("a"), exclusiveSpec("b")]);
      const [other, waiter] = [makeClaim("z"), makeClaim("a")];
      await lockClient.claimHeld(holder);
      await lockClient.claimHeld(other);
      const line = await plantEntry(other, "a", "a");
      await lockClient.claim(waiter);
      expect(await lockClient.driver.release(toReleases(holder))).toEqual([true]);
      expect((await lockClient.renewOnce(waiter)).state).toBe("waiting");
      await fixture.admin.del(line);
      expect((await lockClient.renewOnce(waiter)).state).toBe("held");
      await lockClient.driver.release(toReleases(waiter, other));
    });

    test("an entry left in the queue by a holder is not a request to hold again", async () => {
      const lockClient = await fixture.open();
      const [holder, other, waiter] = [
        makeClaim([permitSpec(1, 3)]),
        makeClaim([permitSpec(1, 3)]),
        makeClaim([permitSpec(1, 3)]),
      ];
      const { token } = await lockClient.claimHeld(holder);
      await lockClient.claimHeld(other);
      const line = await plantEntry(holder, "a", "w");
      expect((await lockClient.claim(waiter)).state).toBe("held");
      expect(await fixture.admin.exists(line)).toBe(0);
      expect(await lockClient.renewOnce(holder)).toMatchObject({ state: "held", token });
      expect(await readViolations()).toEqual([]);
      await lockClient.driver.release(toReleases(holder, other, waiter));
    });
  });

  test("no script aborts when a waiter is found unreachable for the second time behind a grant", async () => {
    const specs = [permitSpec(1, 3)];
    const holder = makeClaim([permitSpec(3, 3)]);
    const [lostClaim, next, endedClaim, last] = [
      makeClaim(specs),
      makeClaim(specs),
      makeClaim(specs),
      makeClaim(specs),
    ];
    const [lostClient, reachableClient] = await openUnreachable(async (lost, reachable) => {
      await reachable.claimHeld(holder);
      // first found unreachable a second ago: the record says so
      await lost.claim(endedClaim);
    });
    await missedBefore(endedClaim);
    await lostClient.claim(lostClaim);
    // in order of the queue: unreachable for the first time, reachable, unreachable for the second time, reachable
    await reorder([lostClaim, endedClaim]);
    await reachableClient.claim(next);
    await reachableClient.claim(last);
    await reorder([lostClaim, next, endedClaim, last]);
    expect(await reachableClient.driver.release(toReleases(holder))).toEqual([true]);
    expect(await readViolations()).toEqual([]);
    expect(await holders("a", holder, lostClaim, next, endedClaim, last)).toEqual([2, 4]);
    for (const waiter of [next, last]) expect(reachableClient.pushes.some(({ id }) => id === waiter.id)).toBe(true);
    expect(await lostClient.renewOnce(endedClaim)).toEqual({ state: "none" });
    expect((await lostClient.renewOnce(lostClaim)).state).toBe("held");
    await reachableClient.driver.release(toReleases(next, last));
    await lostClient.driver.release(toReleases(lostClaim));
  });

  /** The claim is recorded as unreachable for two seconds. */
  async function missedBefore({ id }: Claim, enteredCount = 1): Promise<void> {
    const script = `
      local record, time = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('TIME')
      local now = time[1] * 1000
      local lease, miss = struct.pack('>dd', now + 50000, 0), struct.pack('>dB', now - 2000, ${enteredCount})
      local changed = string.sub(record, 1, 3) .. lease .. string.sub(record, 20, 27) .. miss .. string.sub(record, 37)
      return redis.call('HSET', KEYS[1], ARGV[1], changed)`;
    await fixture.admin.eval(script, 1, fixture.hashOf("a"), `c:${id}`);
  }

  /** The holders of a key are gone, as after the end of their leases. */
  async function removeHolders(key: string): Promise<void> {
    await fixture.admin.hset(fixture.hashOf(key), `k:${key}`, "F");
    await fixture.admin.del(fixture.hashOf(key).replace(/h$/, `a:${key}`));
  }

  /** The queue of "a" has this order. */
  async function reorder(claims: readonly Claim[]): Promise<void> {
    const key = (await fixture.keys()).find((name) => name.endsWith(":w:a")) as string;
    for (const [index, { id }] of claims.entries()) {
      const member = (await fixture.admin.zrange(key, "0", "-1")).find((entry) => entry.includes(id)) as string;
      await fixture.admin.zadd(key, 1_000 + index, member);
    }
  }
});
