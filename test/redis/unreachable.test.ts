/**
 * Waiters whose process does not listen at the moment (unreachable waiters), beside claims over several keys, permits and
 * readers: whoever is granted fits. What counts is what stands in Redis, not what anybody believes.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Claim, Hold } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { redisView, redisViolations } from "../support/inspect-redis.ts";
import type { RedisScene } from "../support/redis-scene.ts";
import { claimOf, redisScene } from "../support/redis-scene.ts";
import { withRedis } from "../support/redis-store.ts";
import { until } from "../support/wait-for.ts";

const exclusive = (key: string): Hold => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
const some = (permits: number, limit: number, key = "a"): Hold => ({ key, permits, limit });

withRedis((server) => {
  let scene: RedisScene;
  beforeEach(() => {
    scene = redisScene(server().port);
  });
  afterEach(() => scene.close());

  /** Those that stand among the admitted of a key, in Redis. */
  const holders = async (key: string, ...claims: readonly Claim[]): Promise<number[]> => {
    const { places } = await redisView(scene.admin, scene.prefix);
    const held = places.filter((place) => place.key === key && place.state === "held");
    return held.map(({ claim }) => claims.findIndex(({ id }) => claim.endsWith(id))).sort();
  };
  const wrong = (): Promise<string[]> => redisViolations(scene.admin, scene.prefix);

  type Opened = Awaited<ReturnType<RedisScene["open"]>>;
  /** Two that hear and one that does not any more. */
  const three = async (place: (lost: Opened, well: Opened) => Promise<unknown>): Promise<readonly [Opened, Opened]> => {
    const [lost, well] = [await scene.openWithFrailInbox(), await scene.open()];
    await place(lost, well);
    await scene.breakInboxes();
    await until(() => well.pushes.some(({ id }) => id === null), { within: 5_000, what: "the inbox to be back" });
    return [lost, well];
  };

  describe("a claim over several keys that goes on past an unreachable waiter", () => {
    test("holds its key alone", async () => {
      const [h, d, w] = [claimOf("a"), claimOf("a"), claimOf([exclusive("a"), exclusive("b")])];
      const [lost, well] = await three(async (away, here) => {
        await here.hold(h);
        await away.claim(d);
        await here.claim(w);
      });
      expect(await well.driver.release([h])).toEqual([true]);
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      expect((await well.ask(w)).state).toBe("held");
      expect((await lost.ask(d)).state).toBe("waiting");
      // nobody who comes or goes finds the key free meanwhile
      const late = claimOf("a");
      expect((await well.claim(late)).state).toBe("waiting");
      await well.driver.release([late]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      await well.driver.release([w]);
      expect((await lost.granted(d)).state).toBe("held");
      expect(await wrong()).toEqual([]);
      await lost.driver.release([d]);
    });

    test("waits for its next key, and holds this one alone meanwhile", async () => {
      const [h, d, b] = [claimOf("a"), claimOf("a"), claimOf("b")];
      const w = claimOf([exclusive("a"), exclusive("b")]);
      const [lost, well] = await three(async (away, here) => {
        await here.hold(h);
        await here.hold(b);
        await away.claim(d);
        await here.claim(w);
      });
      await well.driver.release([h]);
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      expect((await lost.ask(d)).state).toBe("waiting");
      await well.driver.release([b]);
      expect((await well.granted(w)).state).toBe("held");
      await well.driver.release([w]);
      await lost.granted(d);
      await lost.driver.release([d]);
    });

    test("leaves a semaphore within its limit", async () => {
      const h = claimOf([some(3, 3)]);
      const [d, w] = [claimOf([some(2, 3)]), claimOf([some(2, 3), exclusive("b")])];
      const [lost, well] = await three(async (away, here) => {
        await here.hold(h);
        await away.claim(d);
        await here.claim(w);
      });
      await well.driver.release([h]);
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      await well.driver.release([w]);
      await lost.granted(d);
      await lost.driver.release([d]);
    });

    test("leaves readers and writers apart", async () => {
      const h = claimOf("a");
      const [d, w] = [claimOf("a"), claimOf([some(1, ALL_PERMITS), exclusive("b")])];
      const [lost, well] = await three(async (away, here) => {
        await here.hold(h);
        await away.claim(d);
        await here.claim(w);
      });
      await well.driver.release([h]);
      expect(await wrong()).toEqual([]);
      expect(await holders("a", h, d, w)).toEqual([2]);
      await well.driver.release([w]);
      await lost.granted(d);
      await lost.driver.release([d]);
    });
  });

  test("no script ends half-way when a waiter is found unreachable for the second time behind a grant", async () => {
    const lane = [some(1, 3)];
    const h = claimOf([some(3, 3)]);
    const [away, next, gone, last] = [claimOf(lane), claimOf(lane), claimOf(lane), claimOf(lane)];
    const [lost, well] = await three(async (deaf, here) => {
      await here.hold(h);
      // found unreachable for the first time, a second ago: the record says so
      await deaf.claim(gone);
    });
    await missedBefore(gone);
    await lost.claim(away);
    // in the order of the line: unreachable for the first time, one that hears, the second time, one that hears
    await reorder([away, gone]);
    await well.claim(next);
    await well.claim(last);
    await reorder([away, next, gone, last]);
    expect(await well.driver.release([h])).toEqual([true]);
    expect(await wrong()).toEqual([]);
    expect(await holders("a", h, away, next, gone, last)).toEqual([2, 4]);
    for (const waiter of [next, last]) expect(well.pushes.some(({ id }) => id === waiter.id)).toBe(true);
    expect(await lost.ask(gone)).toEqual({ state: "none" });
    expect((await lost.ask(away)).state).toBe("held");
    await well.driver.release([next, last]);
    await lost.driver.release([away]);
  });

  /** The claim is noted as unreachable since two seconds. */
  async function missedBefore({ id }: Claim): Promise<void> {
    const key = (await scene.keys()).find((name) => name.endsWith(`:c:${id}`));
    const script = `
      local record, time = redis.call('GET', KEYS[1]), redis.call('TIME')
      local now = time[1] * 1000
      local claim = struct.pack('>dddd', now + 50000, 0, 1, now - 2000)
      return redis.call('SET', KEYS[1], claim .. string.sub(record, 33), 'KEEPTTL')`;
    await scene.admin.eval(script, 1, String(key));
  }

  /** The line of "a" is in this order. */
  async function reorder(claims: readonly Claim[]): Promise<void> {
    const key = (await scene.keys()).find((name) => name.endsWith(":w:a")) as string;
    for (const [at, { id }] of claims.entries()) {
      const member = (await scene.admin.zrange(key, 0, -1)).find((place) => place.includes(id)) as string;
      await scene.admin.zadd(key, 1_000 + at, member);
    }
  }
});
