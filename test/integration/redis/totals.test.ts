/** What is in use of a key with many holders is known without reading them. */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";

const MANY = 2_000;
const HOUR_MS = 3_600_000;

withRedis((server) => {
  let fixture: RedisFixture;
  let lockClient: Awaited<ReturnType<RedisFixture["open"]>>;
  beforeEach(async () => {
    fixture = createRedisFixture(server().port);
    lockClient = await fixture.open();
  });
  afterEach(async () => {
    const keys = await fixture.keys();
    if (keys.length > 0) await fixture.admin.del(...keys);
    await fixture.close();
  });

  const setOf = (key: string): string => fixture.hashOf(key).replace(/h$/, `a:${key}`);
  const permits = (count: number, limit: number, overrides: Partial<Claim> = {}): Claim =>
    makeClaim([{ key: "key", permits: count, limit }], { wait: false, ...overrides });
  /** An id for which turn.lua does not look for stale fields. */
  const silent = (limit: number): Claim => {
    for (;;) {
      const claim = permits(1, limit);
      if (!claim.id.endsWith("a")) return claim;
    }
  };

  /** What the scripts have taken since the last time: their commands, and the mean time of one (microseconds). */
  async function takeCost(): Promise<{ readonly commands: number; readonly micros: number }> {
    const stats = await fixture.admin.info("commandstats");
    await fixture.admin.config("RESETSTAT");
    const own = [...stats.matchAll(/^cmdstat_([^:|]+):calls=(\d+)/gm)].filter(
      ([, name = ""]) => !/^(config|info|evalsha|ping|publish)/.test(name),
    );
    const micros = Number(/^cmdstat_evalsha:.*usec_per_call=([\d.]+)/m.exec(stats)?.[1]);
    return { commands: own.reduce((sum, [, , calls]) => sum + Number(calls), 0), micros };
  }

  describe.each([
    ["permits", MANY + 1],
    ["readers", ALL_PERMITS],
  ])("with many holders (%s)", (_, limit) => {
    test("a grant, a refusal, a renewal and a release execute as many commands as with ten, and take at most three times as long", async () => {
      const verbs = {
        grant: async () => {
          const claim = silent(limit);
          await lockClient.claimHeld(claim);
          return claim;
        },
        refusal: async () => {
          expect((await lockClient.claim(permits(ALL_PERMITS, ALL_PERMITS))).state).toBe("none");
        },
        renewal: async (claim: Claim) => {
          expect((await lockClient.renewOnce(claim)).state).toBe("held");
        },
        release: async (claim: Claim) => {
          expect(await lockClient.driver.release(toReleases(claim))).toEqual([true]);
        },
      };
      async function measure(): Promise<Record<string, { commands: number; micros: number }[]>> {
        const costs: Record<string, { commands: number; micros: number }[]> = {};
        for (let round = 0; round < 30; round++) {
          await takeCost();
          let claim = {} as Claim;
          for (const [verb, run] of Object.entries(verbs)) {
            claim = ((await run(claim)) as Claim | undefined) ?? claim;
            costs[verb] = [...(costs[verb] ?? []), await takeCost()];
          }
        }
        return costs;
      }
      const held: Claim[] = [];
      const hold = async (count: number): Promise<void> => {
        const fresh = Array.from({ length: count - held.length }, () => permits(1, limit));
        await Promise.all(fresh.map((claim) => lockClient.claimHeld(claim)));
        held.push(...fresh);
      };
      await hold(10);
      const few = await measure();
      await hold(MANY);
      const many = await measure();
      const median = (costs: { micros: number }[]): number =>
        costs.map(({ micros }) => micros).sort((one, other) => one - other)[costs.length >> 1] as number;
      for (const verb of Object.keys(verbs)) {
        const [ofFew, ofMany] = [few[verb] ?? [], many[verb] ?? []];
        expect(Math.min(...ofMany.map(({ commands }) => commands)), verb).toBe(
          Math.min(...ofFew.map(({ commands }) => commands)),
        );
        expect(median(ofMany), verb).toBeLessThan(3 * median(ofFew));
      }
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
      await lockClient.driver.release(toReleases(...held));
    });
  });

  describe("totals that are not true are put right by the next call", () => {
    /** Five permits are in use by three claims. */
    async function heldThree(limit = 6): Promise<Claim[]> {
      const claims = [permits(1, limit), permits(2, limit), permits(2, limit)];
      for (const claim of claims) await lockClient.claimHeld(claim);
      return claims;
    }
    const entryOf = async ({ id }: Claim): Promise<string> =>
      (await fixture.admin.zrange(setOf("key"), "0", "-1")).find((entry) => entry.includes(id)) as string;

    test("an entry that is gone", async () => {
      const [, second] = (await heldThree()) as [Claim, Claim, Claim];
      await fixture.admin.zrem(setOf("key"), await entryOf(second));
      expect((await lockClient.claim(permits(4, 6))).state).toBe("none");
      expect(await lockClient.renewOnce(second)).toEqual({ state: "none" });
      await lockClient.claimHeld(permits(3, 6));
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
    });

    test("an entry that was never counted", async () => {
      const [first] = (await heldThree()) as [Claim, Claim, Claim];
      const other = permits(1, 6);
      const entry = (await entryOf(first)).replace(first.id, other.id);
      await fixture.admin.zadd(setOf("key"), Date.now() + 1_000, entry);
      expect((await lockClient.claim(permits(1, 6))).state).toBe("none");
      // it counts until it ends
      await until(async () => (await lockClient.claim(permits(1, 6))).state === "held", {
        within: 5_000,
        what: "the end of the entry",
      });
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
    });

    test("leases that are too long after a backward step of the clock: they are cut", async () => {
      const [first] = (await heldThree()) as [Claim, Claim, Claim];
      const now = Date.now();
      await fixture.admin.zadd(setOf("key"), now + HOUR_MS, await entryOf(first), -(now + HOUR_MS - 60_000), "time");
      expect((await lockClient.claim(permits(2, 6))).state).toBe("none");
      expect(Number(await fixture.admin.zscore(setOf("key"), await entryOf(first)))).toBeLessThan(now + 120_000);
    });

    test("leases that end are counted out, many at once", async () => {
      const shortClaims = Array.from({ length: 50 }, () => permits(1, 60, { ttlMs: 100 }));
      const [held] = [permits(2, 60), ...shortClaims];
      await Promise.all([held, ...shortClaims].map((claim) => lockClient.claimHeld(claim as Claim)));
      await lockClient.driver.release(toReleases(held as Claim));
      await until(async () => (await lockClient.driver.list({ key: "key" }, { max: 1 })).items.length === 0, {
        within: 5_000,
        what: "the ends of the leases",
      });
      await lockClient.claimHeld(permits(60, 60));
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
    });

    test("an entry whose claim is made again counts once", async () => {
      const [, second] = (await heldThree(8)) as [Claim, Claim, Claim];
      await fixture.admin.hdel(fixture.hashOf("key"), `c:${second.id}`);
      await lockClient.claimHeld(second);
      await lockClient.claimHeld(permits(3, 8));
      expect((await lockClient.claim(permits(1, 8))).state).toBe("none");
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
    });

    test("missing ones", async () => {
      await heldThree();
      await fixture.admin.zrem(setOf("key"), "used", "time");
      expect((await lockClient.claim(permits(2, 6))).state).toBe("none");
      await lockClient.claimHeld(permits(1, 6));
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
    });

    test("the whole set", async () => {
      const claims = await heldThree();
      await fixture.admin.del(setOf("key"));
      expect(await lockClient.driver.renew(claims)).toEqual(claims.map(() => ({ state: "none" })));
      for (const claim of [permits(3, 6), permits(3, 6)]) await lockClient.claimHeld(claim);
      expect((await lockClient.claim(permits(1, 6))).state).toBe("none");
      expect(await findRedisViolations(fixture.admin, fixture.prefix)).toEqual([]);
    });
  });
});
