/**
 * `SET key random NX PX`, deleted only by its owner; then Redisson's design: counted re-entry, a lease, a message on
 * unlock instead of polling. Its faults are checks here: re-entry resets the lease to the inner call's; unlock of a
 * vanished key returns success; a paused holder and the next one both work. Wrong locks written after the article prove
 * the checks. (The majority over several servers is in test/integration/quorum.)
 */

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { redis } from "../../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../../src/index.ts";
import { createLocks } from "../../../../src/index.ts";
import { until } from "../../../../src/testing/until.ts";
import { withRedis } from "../../../support/stores/redis-conformance.ts";

/** The lock under test. */
interface HeldLock {
  /** Acquires it again in the same flow, with this lease, and releases that. */
  renew(leaseMs: number): Promise<void>;
  remainingMs(): Promise<number>;
  /** Was the lock still held at its release? */
  release(): Promise<boolean>;
  /** The token for a resource that checks tokens; null: there is none. */
  readonly token: bigint | null;
}

interface LockSystem {
  acquire(leaseMs: number): Promise<HeldLock>;
  /** An operator deletes the lock while it is held. */
  crash(): Promise<void>;
}

/** Redisson's, after the article: a hash of owner and count. */
const ENTER_SCRIPT = `
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0`;
const LEAVE_SCRIPT = `
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('PUBLISH', KEYS[1], '0')
  return 1
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[1], '0')
end
return 1`;

withRedis((server) => {
  let admin: Redis;
  const clients: Locks[] = [];
  beforeEach(async () => {
    admin = new Redis(server().port, "127.0.0.1");
    await admin.flushall();
  });
  afterEach(async () => {
    for (const locks of clients.splice(0)) await locks.close();
    admin.disconnect();
  });

  const client = (prefix: string, options: object = {}): Locks => {
    const driver = redis(() => new Redis(server().port, "127.0.0.1"), { prefix, warn: () => undefined });
    const locks = createLocks(driver, { order: "strict", ...options });
    clients.push(locks);
    return locks;
  };

  const articleSystem = (): LockSystem => ({
    async acquire(leaseMs) {
      const owner = randomUUID();
      const enterFor = (ms: number) =>
        until(() => admin.eval(ENTER_SCRIPT, 1, "lock", owner, ms), { within: 9_000, what: "it" });
      const release = async (): Promise<boolean> => (await admin.eval(LEAVE_SCRIPT, 1, "lock", owner)) === 1;
      await enterFor(leaseMs);
      return {
        async renew(ms) {
          await enterFor(ms);
          await release();
        },
        remainingMs: () => admin.pttl("lock"),
        release,
        token: null,
      };
    },
    crash: async () => void (await admin.del("lock")),
  });

  const holdfastSystem = (): LockSystem => {
    const prefix = randomUUID();
    return {
      // `renew: false`: the lease runs on as it does for a paused holder
      async acquire(leaseMs) {
        const locks = client(prefix, { renew: false });
        let [give, take] = [(): void => undefined, (_: HeldLock): void => undefined];
        const given = new Promise<void>((resolve) => {
          give = resolve;
        });
        const taken = new Promise<HeldLock>((resolve) => {
          take = resolve;
        });
        const inner: { again: ((ms: number) => void) | null; done: () => void } = {
          again: null,
          done: () => undefined,
        };
        const body = locks.using("lock", { ttl: leaseMs }, async (lock) => {
          take({
            renew: (ms) =>
              new Promise((resolve) => {
                inner.done = resolve;
                inner.again?.(ms);
              }),
            remainingMs: async () => {
              const [view] = await locks.list("lock");
              return view?.state === "held" ? (view.remainingMs ?? 0) : 0;
            },
            async release() {
              give();
              return body.then(
                () => true,
                () => false,
              );
            },
            token: lock.token,
          });
          for (;;) {
            const ms = await Promise.race([
              given.then(() => null),
              new Promise<number>((resolve) => {
                inner.again = resolve;
              }),
            ]);
            if (ms === null) return;
            await locks.using("lock", { ttl: ms }, () => undefined);
            inner.done();
          }
        });
        return taken;
      },
      async crash() {
        await admin.del(await admin.keys(`${prefix}:3:*`));
      },
    };
  };

  /** Each returns whether the system passes. */
  const checks: Readonly<Record<string, (system: LockSystem) => Promise<boolean>>> = {
    "entering again with a short lease leaves the lease as it was": async (system) => {
      const heldLock = await system.acquire(30_000);
      await heldLock.renew(500);
      const isLong = (await heldLock.remainingMs()) > 20_000;
      await heldLock.release();
      return isLong;
    },
    "giving back a lock that is gone is no success": async (system) => {
      const heldLock = await system.acquire(30_000);
      await system.crash();
      return !(await heldLock.release());
    },
    "a holder that stood still past its lease does no harm to a resource that checks": async (system) => {
      let highest = 0n;
      let written = 0;
      const write = ({ token }: HeldLock): boolean => {
        if (token !== null && token < highest) return false;
        if (token !== null) highest = token;
        written++;
        return true;
      };
      const paused = await system.acquire(300);
      const next = await system.acquire(30_000);
      write(next);
      // it wakes up, and continues to work
      write(paused);
      await next.release();
      await paused.release();
      return written === 1;
    },
  };

  describe("Holdfast's lock", () => {
    for (const [name, check] of Object.entries(checks)) {
      test(name, async () => {
        expect(await check(holdfastSystem())).toBe(true);
      });
    }

    test("a waiter is woken by a message, and sends no commands meanwhile", { timeout: 20_000 }, async () => {
      const prefix = randomUUID();
      const [firstClient, other] = [client(prefix, { ttl: "30s" }), client(prefix, { ttl: "30s" })];
      const lock = await firstClient.acquire("lock");
      const next = other.acquire("lock");
      await until(async () => (await firstClient.list("lock")).length === 2, { within: 5_000, what: "the waiter" });
      await admin.config("RESETSTAT");
      await delay(1_500);
      expect(await admin.info("commandstats")).not.toMatch(/cmdstat_eval/);
      await lock.release();
      await (await next).release();
      const stats = await admin.info("commandstats");
      // two releases; the grant between them took no command of the waiter
      expect(stats).toMatch(/cmdstat_evalsha:calls=2,/);
    });

    test("only the owner can release it, and after a crash it is free when the lease ends", async () => {
      const prefix = randomUUID();
      const [firstClient, other] = [client(prefix, { renew: false }), client(prefix)];
      for (const locks of [firstClient, other]) await locks.list(""); // connected
      const lock = await firstClient.acquire("lock", { ttl: "2s" });
      expect(await other.tryAcquire("lock")).toBeNull();
      const next = await other.acquire("lock");
      expect(next.token).toBeGreaterThan(lock.token);
      expect(await lock.release()).toBe(false);
      expect((await firstClient.list("lock")).map(({ state }) => state)).toEqual(["held"]);
      expect(await next.release()).toBe(true);
    });

    test("a holder is notified that its lock is gone", async () => {
      const prefix = randomUUID();
      const locks = client(prefix, { ttl: "1s" });
      const lock = await locks.acquire("lock");
      await admin.del(await admin.keys(`${prefix}:3:*`));
      await until(() => lock.signal.aborted, { within: 3_000, what: "the signal" });
      expect(await lock.release()).toBe(false);
    });

    test("the lease is renewed as long as it is held", async () => {
      const [firstClient, other] = ["renewed", "renewed"].map((prefix) => client(prefix, { ttl: "3s" })) as [
        Locks,
        Locks,
      ];
      const lock = await firstClient.acquire("lock");
      await delay(3_100);
      expect(await other.tryAcquire("lock")).toBeNull();
      lock.throwIfLost();
      expect(await lock.release()).toBe(true);
    });
  });

  describe("the article's lock fails, which proves the checks", () => {
    for (const [name, check] of Object.entries(checks)) {
      test(name, async () => {
        expect(await check(articleSystem())).toBe(false);
      });
    }
  });
});
