/**
 * Waiters whose process is not subscribed at the moment (unreachable waiters), beside claims over several keys, permits
 * and readers: every granted claim fits. The state in Redis counts, not the clients' view.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Claim, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations, readStoreView } from "../../support/stores/redis-inspector.ts";
import { until } from "../../support/until.ts";

const exclusiveSpec = (key: string): LockSpec => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
const permitSpec = (permits: number, limit: number, key = "a"): LockSpec => ({ key, permits, limit });

withRedis((server) => {
  let scene: RedisFixture;
  beforeEach(() => {
    scene = createRedisFixture(server().port);
  });
  afterEach(() => scene.close());

  /** The admitted entries of a key, in Redis. */
  const holders = async (key: string, ...claims: readonly Claim[]): Promise<number[]> => {
    const { entries } = await readStoreView(scene.admin, scene.prefix);
    const held = entries.filter((place) => place.key === key && place.state === "held");
    return held.map(({ claim }) => claims.findIndex(({ id }) => claim.endsWith(id))).sort();
  };
  const wrong = (): Promise<string[]> => findRedisViolations(scene.admin, scene.prefix);

  type Opened = Awaited<ReturnType<RedisFixture["open"]>>;
  /** Two reachable clients and an unreachable one. */
  const three = async (place: (lost: Opened, well: Opened) => Promise<unknown>): Promise<readonly [Opened, Opened]> => {
    const [lost, well] = [await scene.openWithFragileSubscriber(), await scene.open()];
    await place(lost, well);
    await scene.breakSubscribers();
    await until(() => well.pushes.some(({ id }) => id === null), { within: 5_000, what: "the inbox to be back" });
    return [lost, well];
  };

  describe("a claim over several keys that passes an unreachable waiter", () => {
    test("holds its key alone", async () => {
      const [h, d, w] = [makeClaim("a"), makeClaim("a"), makeClaim([exclusiveSpec("a"), exclusiveSpec("b")])];
      const [lost, well] = await three(async (away, here) => {
        await here.claimHeld(h);
        await away.claim(d);
        await here.claim(w);
      });
      expect(await well.driver.release(toReleases(h))).toEqual([true]);
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      expect((await well.renewOnce(w)).state).toBe("held");
      expect((await lost.renewOnce(d)).state).toBe("waiting");
      // no claim made or released finds the key free meanwhile
      const late = makeClaim("a");
      expect((await well.claim(late)).state).toBe("waiting");
      await well.driver.release(toReleases(late));
      expect(await holders("a", h, d, w)).toEqual([2]);
      await well.driver.release(toReleases(w));
      expect((await lost.waitForGrant(d)).state).toBe("held");
      expect(await wrong()).toEqual([]);
      await lost.driver.release(toReleases(d));
    });

    test("waits for its next key, and holds this one alone meanwhile", async () => {
      const [h, d, b] = [makeClaim("a"), makeClaim("a"), makeClaim("b")];
      const w = makeClaim([exclusiveSpec("a"), exclusiveSpec("b")]);
      const [lost, well] = await three(async (away, here) => {
        await here.claimHeld(h);
        await here.claimHeld(b);
        await away.claim(d);
        await here.claim(w);
      });
      await well.driver.release(toReleases(h));
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      expect((await lost.renewOnce(d)).state).toBe("waiting");
      await well.driver.release(toReleases(b));
      expect((await well.waitForGrant(w)).state).toBe("held");
      await well.driver.release(toReleases(w));
      await lost.waitForGrant(d);
      await lost.driver.release(toReleases(d));
    });

    test("leaves a semaphore within its limit", async () => {
      const h = makeClaim([permitSpec(3, 3)]);
      const [d, w] = [makeClaim([permitSpec(2, 3)]), makeClaim([permitSpec(2, 3), exclusiveSpec("b")])];
      const [lost, well] = await three(async (away, here) => {
        await here.claimHeld(h);
        await away.claim(d);
        await here.claim(w);
      });
      await well.driver.release(toReleases(h));
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      await well.driver.release(toReleases(w));
      await lost.waitForGrant(d);
      await lost.driver.release(toReleases(d));
    });

    test("leaves readers and writers apart", async () => {
      const h = makeClaim("a");
      const [d, w] = [makeClaim("a"), makeClaim([permitSpec(1, ALL_PERMITS), exclusiveSpec("b")])];
      const [lost, well] = await three(async (away, here) => {
        await here.claimHeld(h);
        await away.claim(d);
        await here.claim(w);
      });
      await well.driver.release(toReleases(h));
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      await well.driver.release(toReleases(w));
      await lost.waitForGrant(d);
      await lost.driver.release(toReleases(d));
    });
  });

  test("the entry that a removed waiter leaves in an earlier queue is free for others in the same call", async () => {
    const [h, f] = [makeClaim([permitSpec(1, 3)]), makeClaim([permitSpec(1, 3)])];
    const b = makeClaim("b");
    const [d, w] = [
      makeClaim([permitSpec(1, 3), exclusiveSpec("b")]),
      makeClaim([permitSpec(1, 3), exclusiveSpec("b")]),
    ];
    const x = makeClaim([permitSpec(1, 3)]);
    const [lost, well] = await three(async (away, here) => {
      for (const claim of [h, f, b]) await here.claimHeld(claim);
      await away.claim(d);
      for (const claim of [w, x]) await here.claim(claim);
    });
    await missedBefore(d, 2);
    await scene.admin.del((await scene.keys()).find((name) => name.endsWith(":a:b")) as string);
    await well.driver.release(toReleases(h));
    expect(await holders("a", h, f, d, w, x)).toEqual([1, 3, 4]);
    expect((await well.renewOnce(w)).state).toBe("held");
    expect(await lost.renewOnce(d)).toEqual({ state: "none" });
    await well.driver.release(toReleases(b, f, w, x));
  });

  test("only as many claims pass an unreachable waiter as leave it room", async () => {
    const h = makeClaim([permitSpec(3, 3)]);
    const [d, ...others] = [
      makeClaim([permitSpec(2, 3)]),
      ...["b", "c", "d"].map((key) => makeClaim([permitSpec(1, 3), exclusiveSpec(key)])),
    ] as const;
    const [lost, well] = await three(async (away, here) => {
      await here.claimHeld(h);
      await away.claim(d);
      for (const claim of others) await here.claim(claim);
    });
    await well.driver.release(toReleases(h));
    expect(await wrong()).toEqual([]);
    // with the first of them there is room for it, with two no more
    expect(await holders("a", h, d, ...others)).toEqual([2, 3]);
    await well.driver.release(toReleases(...others));
    await lost.waitForGrant(d);
    await lost.driver.release(toReleases(d));
  });

  test("a claim granted by its own call, after its turn in that call, is answered as granted", async () => {
    const one = await scene.open();
    const [h, w] = [makeClaim("a"), makeClaim("a")];
    await one.claimHeld(h);
    await one.claim(w);
    await scene.admin.del((await scene.keys()).find((name) => name.endsWith(`:c:${h.id}`)) as string);
    expect((await one.driver.renew([w, h])).map((answer) => answer?.state)).toEqual(["held", "none"]);
    await one.driver.release(toReleases(w));
  });

  test("a claim over several keys granted without a reachable client, and not renewed, is removed from all of them after a second", async () => {
    const [lost, other] = [await scene.openWithFragileSubscriber(), await scene.open()];
    const [h, d] = [makeClaim("b"), makeClaim([exclusiveSpec("a"), exclusiveSpec("b")])];
    await other.claimHeld(h);
    await lost.claim(d);
    await scene.breakSubscribers();
    await other.driver.release(toReleases(h));
    expect(await wrong()).toEqual([]);
    const late = [makeClaim("a"), makeClaim("b")];
    for (const claim of late) expect((await other.claim(claim)).state).toBe("waiting");
    for (const claim of late) await other.waitForGrant(claim);
    await other.driver.release(toReleases(...late));
  });

  describe("the permits stored in Redis count, not the expected ones", () => {
    /** Copies the entry of a holder of one key into the queue of another, as a fault would. */
    async function planted(from: string, to: string, kind: "a" | "w"): Promise<string> {
      const keys = await scene.keys();
      const [place, score] = await scene.admin.zrange(
        keys.find((key) => key.endsWith(`:a:${from}`)) as string,
        "0",
        "0",
        "WITHSCORES",
      );
      const line = (keys.find((key) => /:[aw]:/.test(key) && key.endsWith(`:${to}`)) as string).replace(
        /:[aw]:/,
        `:${kind}:`,
      );
      await scene.admin.zadd(line, kind === "w" ? 1 : String(score), String(place));
      await scene.admin.pexpire(line, 60_000);
      return line;
    }

    test.each([
      ["one key", [exclusiveSpec("a")]],
      ["several keys", [exclusiveSpec("a"), exclusiveSpec("b")]],
    ] as const)(
      "a released claim with all permits of %s may have shared it: the queue is checked",
      async (_, holds) => {
        const one = await scene.open();
        const [h, other, w] = [makeClaim(holds), makeClaim("z"), makeClaim("a")];
        await one.claimHeld(h);
        await one.claimHeld(other);
        const line = await planted("z", "a", "a");
        await one.claim(w);
        expect(await one.driver.release(toReleases(h))).toEqual([true]);
        expect((await one.renewOnce(w)).state).toBe("waiting");
        await scene.admin.del(line);
        expect((await one.renewOnce(w)).state).toBe("held");
        await one.driver.release(toReleases(w, other));
      },
    );

    test("an entry left in the queue by a holder is not a request to hold again", async () => {
      const one = await scene.open();
      const [h, w] = [makeClaim([permitSpec(1, 3)]), makeClaim([permitSpec(2, 3)])];
      const { token } = await one.claimHeld(h);
      const line = await planted("a", "a", "w");
      expect((await one.claim(w)).state).toBe("held");
      expect(await scene.admin.exists(line)).toBe(0);
      expect(await one.renewOnce(h)).toMatchObject({ state: "held", token });
      expect(await wrong()).toEqual([]);
      await one.driver.release(toReleases(h, w));
    });
  });

  test("no script aborts when a waiter is found unreachable for the second time behind a grant", async () => {
    const lane = [permitSpec(1, 3)];
    const h = makeClaim([permitSpec(3, 3)]);
    const [away, next, gone, last] = [makeClaim(lane), makeClaim(lane), makeClaim(lane), makeClaim(lane)];
    const [lost, well] = await three(async (deaf, here) => {
      await here.claimHeld(h);
      // first found unreachable a second ago: the record says so
      await deaf.claim(gone);
    });
    await missedBefore(gone);
    await lost.claim(away);
    // in order of the queue: unreachable for the first time, reachable, unreachable for the second time, reachable
    await reorder([away, gone]);
    await well.claim(next);
    await well.claim(last);
    await reorder([away, next, gone, last]);
    expect(await well.driver.release(toReleases(h))).toEqual([true]);
    expect(await wrong()).toEqual([]);
    expect(await holders("a", h, away, next, gone, last)).toEqual([2, 4]);
    for (const waiter of [next, last]) expect(well.pushes.some(({ id }) => id === waiter.id)).toBe(true);
    expect(await lost.renewOnce(gone)).toEqual({ state: "none" });
    expect((await lost.renewOnce(away)).state).toBe("held");
    await well.driver.release(toReleases(next, last));
    await lost.driver.release(toReleases(away));
  });

  /** The claim is recorded as unreachable for two seconds. */
  async function missedBefore({ id }: Claim, stage = 1): Promise<void> {
    const key = (await scene.keys()).find((name) => name.endsWith(`:c:${id}`));
    const script = `
      local record, time = redis.call('GET', KEYS[1]), redis.call('TIME')
      local now = time[1] * 1000
      local claim = struct.pack('>dddd', now + 50000, 0, ${stage}, now - 2000)
      return redis.call('SET', KEYS[1], claim .. string.sub(record, 33), 'KEEPTTL')`;
    await scene.admin.eval(script, 1, String(key));
  }

  /** The queue of "a" has this order. */
  async function reorder(claims: readonly Claim[]): Promise<void> {
    const key = (await scene.keys()).find((name) => name.endsWith(":w:a")) as string;
    for (const [at, { id }] of claims.entries()) {
      const member = (await scene.admin.zrange(key, "0", "-1")).find((place) => place.includes(id)) as string;
      await scene.admin.zadd(key, 1_000 + at, member);
    }
  }
});
