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

  test("what one who is dropped leaves in an earlier queue is there for others in the same call", async () => {
    const [h, f] = [claimOf([some(1, 3)]), claimOf([some(1, 3)])];
    const b = claimOf("b");
    const [d, w] = [claimOf([some(1, 3), exclusive("b")]), claimOf([some(1, 3), exclusive("b")])];
    const x = claimOf([some(1, 3)]);
    const [lost, well] = await three(async (away, here) => {
      for (const claim of [h, f, b]) await here.hold(claim);
      await away.claim(d);
      for (const claim of [w, x]) await here.claim(claim);
    });
    await missedBefore(d, 2);
    await scene.admin.del((await scene.keys()).find((name) => name.endsWith(":a:b")) as string);
    await well.driver.release([h]);
    expect(await holders("a", h, f, d, w, x)).toEqual([1, 3, 4]);
    expect((await well.ask(w)).state).toBe("held");
    expect(await lost.ask(d)).toEqual({ state: "none" });
    await well.driver.release([b, f, w, x]);
  });

  test("no more go on past an unreachable waiter than leave it room", async () => {
    const h = claimOf([some(3, 3)]);
    const [d, ...others] = [
      claimOf([some(2, 3)]),
      ...["b", "c", "d"].map((key) => claimOf([some(1, 3), exclusive(key)])),
    ] as const;
    const [lost, well] = await three(async (away, here) => {
      await here.hold(h);
      await away.claim(d);
      for (const claim of others) await here.claim(claim);
    });
    await well.driver.release([h]);
    expect(await wrong()).toEqual([]);
    // with the first of them there is room for it, with two no more
    expect(await holders("a", h, d, ...others)).toEqual([2, 3]);
    await well.driver.release(others);
    await lost.granted(d);
    await lost.driver.release([d]);
  });

  test("who is granted by the very call that asks for it, after its turn in that call, is answered so", async () => {
    const one = await scene.open();
    const [h, w] = [claimOf("a"), claimOf("a")];
    await one.hold(h);
    await one.claim(w);
    await scene.admin.del((await scene.keys()).find((name) => name.endsWith(`:c:${h.id}`)) as string);
    expect((await one.driver.renew([w, h])).map((answer) => answer?.state)).toEqual(["held", "none"]);
    await one.driver.release([w]);
  });

  test("who is granted unheard over several keys, and says nothing, leaves all of them after a second", async () => {
    const [lost, other] = [await scene.openWithFrailInbox(), await scene.open()];
    const [h, d] = [claimOf("b"), claimOf([exclusive("a"), exclusive("b")])];
    await other.hold(h);
    await lost.claim(d);
    await scene.breakInboxes();
    await other.driver.release([h]);
    expect(await wrong()).toEqual([]);
    const late = [claimOf("a"), claimOf("b")];
    for (const claim of late) expect((await other.claim(claim)).state).toBe("waiting");
    for (const claim of late) await other.granted(claim);
    await other.driver.release(late);
  });

  describe("what stands in Redis counts, whatever should stand there", () => {
    /** The place of who holds one key is put into the line of another, too: as a fault would. */
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
      ["one key", [exclusive("a")]],
      ["several keys", [exclusive("a"), exclusive("b")]],
    ] as const)(
      "who leaves with all permits of %s may have been there with another: the line is looked at",
      async (_, holds) => {
        const one = await scene.open();
        const [h, other, w] = [claimOf(holds), claimOf("z"), claimOf("a")];
        await one.hold(h);
        await one.hold(other);
        const line = await planted("z", "a", "a");
        await one.claim(w);
        expect(await one.driver.release([h])).toEqual([true]);
        expect((await one.ask(w)).state).toBe("waiting");
        await scene.admin.del(line);
        expect((await one.ask(w)).state).toBe("held");
        await one.driver.release([w, other]);
      },
    );

    test("a place left in the queue by whoever holds is no wish to hold again", async () => {
      const one = await scene.open();
      const [h, w] = [claimOf([some(1, 3)]), claimOf([some(2, 3)])];
      const { token } = await one.hold(h);
      const line = await planted("a", "a", "w");
      expect((await one.claim(w)).state).toBe("held");
      expect(await scene.admin.exists(line)).toBe(0);
      expect(await one.ask(h)).toMatchObject({ state: "held", token });
      expect(await wrong()).toEqual([]);
      await one.driver.release([h, w]);
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
  async function missedBefore({ id }: Claim, stage = 1): Promise<void> {
    const key = (await scene.keys()).find((name) => name.endsWith(`:c:${id}`));
    const script = `
      local record, time = redis.call('GET', KEYS[1]), redis.call('TIME')
      local now = time[1] * 1000
      local claim = struct.pack('>dddd', now + 50000, 0, ${stage}, now - 2000)
      return redis.call('SET', KEYS[1], claim .. string.sub(record, 33), 'KEEPTTL')`;
    await scene.admin.eval(script, 1, String(key));
  }

  /** The line of "a" is in this order. */
  async function reorder(claims: readonly Claim[]): Promise<void> {
    const key = (await scene.keys()).find((name) => name.endsWith(":w:a")) as string;
    for (const [at, { id }] of claims.entries()) {
      const member = (await scene.admin.zrange(key, "0", "-1")).find((place) => place.includes(id)) as string;
      await scene.admin.zadd(key, 1_000 + at, member);
    }
  }
});
