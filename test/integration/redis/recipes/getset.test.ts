/**
 * `SETNX`, `GET` and `GETSET` with the time of expiry as the value. Its faults: the clients' clocks decide; a loser's
 * GETSET overwrites the winner's expiry; seconds are added to milliseconds; unlock looks at the time, not at the owner.
 * Each fault is a check, applied to the article's lock and to Holdfast's.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { redis } from "../../../../src/drivers/redis/driver.ts";
import type { Claim, Driver } from "../../../../src/spi/driver.ts";
import { makeClaim } from "../../../support/claims.ts";
import { NO_EVENTS } from "../../../support/driver-events.ts";
import { toReleases } from "../../../support/releases.ts";
import { withRedis } from "../../../support/stores/redis-conformance.ts";

/** One process's lock. */
interface Locker {
  /** One attempt, without waiting. */
  acquire(leaseMs: number): Promise<boolean>;
  release(): Promise<void>;
}

interface LockSystem {
  /** `aheadMs`: by how much this process's clock is ahead. */
  locker(aheadMs?: number): Promise<Locker>;
  /** The rest of the holder's lease; 0: there is no holder. */
  remainingMs(): Promise<number>;
}

withRedis((server) => {
  let admin: Redis;
  const drivers: Driver[] = [];
  beforeEach(async () => {
    admin = new Redis(server().port, "127.0.0.1");
    await admin.flushall();
  });
  afterEach(async () => {
    for (const driver of drivers.splice(0)) await driver.close();
    admin.disconnect();
  });

  /** The article's lock, with its mixture of units only where the check is about that. */
  const articleSystem = (unit = 1): LockSystem => ({
    async locker(aheadMs = 0) {
      const now = (): number => Date.now() + aheadMs;
      return {
        async acquire(leaseMs) {
          const expiry = String(now() + leaseMs * unit);
          if ((await admin.setnx("lock", expiry)) === 1) return true;
          const current = await admin.get("lock");
          if (current === null || Number(current) >= now()) return false;
          const old = await admin.getset("lock", expiry);
          return old === current;
        },
        async release() {
          const current = await admin.get("lock");
          if (current !== null && Number(current) >= now()) await admin.del("lock");
        },
      };
    },
    remainingMs: async () => Math.max(Number((await admin.get("lock")) ?? 0) - Date.now(), 0),
  });

  const holdfastSystem = (): LockSystem => {
    const prefix = randomUUID();
    const open = async (): Promise<Driver> => {
      const driver = redis(() => new Redis(server().port, "127.0.0.1"), { prefix, warn: () => undefined });
      drivers.push(driver);
      await driver.open(NO_EVENTS);
      return driver;
    };
    return {
      async locker(aheadMs = 0) {
        const driver = await open();
        const claims: Claim[] = [];
        return {
          async acquire(leaseMs) {
            const claim = makeClaim("lock", { ttlMs: leaseMs, wait: false });
            if (aheadMs !== 0) vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + aheadMs });
            const { state } = await driver.claim(claim).finally(() => vi.useRealTimers());
            if (state === "held") claims.push(claim);
            return state === "held";
          },
          release: async () => void (await driver.release(toReleases(...claims.splice(0)))),
        };
      },
      async remainingMs() {
        const [view] = (await (drivers[0] ?? (await open())).list({ prefix: "lock" }, { max: 1 })).items;
        return view?.answer.state === "held" ? view.answer.remainingMs : 0;
      },
    };
  };

  /** Each returns whether the system passes. */
  const checks: Readonly<Record<string, (system: LockSystem) => Promise<boolean>>> = {
    "a newcomer whose clock is ahead takes no lock that is held": async (system) => {
      const [holder, ahead] = [await system.locker(), await system.locker(3_600_000)];
      await holder.acquire(30_000);
      return !(await ahead.acquire(30_000));
    },
    "a holder whose clock is ahead keeps it no longer than its lease": async (system) => {
      const [ahead, next] = [await system.locker(3_600_000), await system.locker()];
      await ahead.acquire(300);
      await delay(500);
      return next.acquire(30_000);
    },
    "those who come too late for an expired lock lengthen nobody's lease": async (system) => {
      const first = await system.locker();
      const lockers = await Promise.all(Array.from({ length: 16 }, () => system.locker()));
      await first.acquire(100);
      await delay(200);
      // all find it expired; one wins, with a short lease; the others wanted long ones
      const results = await Promise.all(lockers.map((locker, index) => locker.acquire(index === 0 ? 2_000 : 60_000)));
      const winnerIndex = results.indexOf(true);
      const remainingMs = await system.remainingMs();
      return results.filter(Boolean).length === 1 && remainingMs <= (winnerIndex === 0 ? 2_000 : 60_000);
    },
    "a lease of a minute is a minute": async (system) => {
      const [holder, next] = [await system.locker(), await system.locker()];
      await holder.acquire(60_000);
      await delay(150);
      return !(await next.acquire(60_000)) && (await system.remainingMs()) > 50_000;
    },
    "whose lease has ended takes the lock from nobody by giving it back": async (system) => {
      const [late, holder, third] = [await system.locker(), await system.locker(), await system.locker()];
      await late.acquire(100);
      await delay(200);
      await holder.acquire(30_000);
      await late.release();
      return !(await third.acquire(30_000));
    },
  };

  describe("Holdfast's lock", () => {
    for (const [name, check] of Object.entries(checks)) {
      test(name, async () => {
        expect(await check(holdfastSystem())).toBe(true);
      });
    }
  });

  describe("the article's lock fails, which proves the checks", () => {
    const faults = [
      ["a newcomer whose clock is ahead takes no lock that is held", articleSystem()],
      ["a holder whose clock is ahead keeps it no longer than its lease", articleSystem()],
      ["those who come too late for an expired lock lengthen nobody's lease", articleSystem()],
      // a lease in seconds, added to a time in milliseconds
      ["a lease of a minute is a minute", articleSystem(1 / 1_000)],
      ["whose lease has ended takes the lock from nobody by giving it back", articleSystem()],
    ] as const;
    for (const [name, system] of faults) {
      test(name, async () => {
        expect(await checks[name]?.(system)).toBe(false);
      });
    }
  });
});
