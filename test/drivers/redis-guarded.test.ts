/** The suite with guardDataLoss, on stores that have been in use for long. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { claimOf } from "../server/support.ts";
import { redisViolations } from "../support/inspect-redis.ts";
import { longInUse } from "../support/redis-scene.ts";
import { OPTIONS, shortRunner, withRedis } from "../support/redis-store.ts";
import type { RedisServer } from "../support/services/redis.ts";

const LONGEST_MS = 86_400_000;

function guarded({ port }: RedisServer, prefix: string): Driver {
  return redis(() => new Redis(port, "127.0.0.1"), { prefix, guardDataLoss: { longestTtlMs: LONGEST_MS } });
}

withRedis((server, admin) => {
  conformance(shortRunner(), "Redis with guardDataLoss", {
    ...OPTIONS,
    skip: [
      { test: "the longest lease is kept", reason: "a guarded store grants none longer than it holds its breath" },
    ],
    open: async () => {
      const prefix = randomUUID();
      await longInUse(admin(), prefix);
      return { driver: () => guarded(server(), prefix), inspect: () => redisViolations(admin(), prefix) };
    },
    // the first use of a prefix: for all the store knows, it has lost data
    openPaused: async () => {
      const prefix = randomUUID();
      return { driver: () => guarded(server(), prefix), inspect: () => redisViolations(admin(), prefix) };
    },
  });

  test("in a grace period a key whose holder has placed its claim again is busy; of any other it is not known", async () => {
    const prefix = randomUUID();
    await longInUse(admin(), prefix);
    const [holder, other] = [guarded(server(), prefix), guarded(server(), prefix)];
    for (const driver of [holder, other]) await driver.open(() => undefined);
    const claim = claimOf("k");
    expect((await holder.claim(claim)).state).toBe("held");
    await admin().flushall();
    expect((await holder.renew([claim]))[0]?.state).toBe("held");
    expect(await other.claim(claimOf("k", { wait: false }))).toEqual({ state: "none" });
    const paused = { reason: "gracePeriod", remainingMs: expect.any(Number) };
    expect(await other.claim(claimOf("free", { wait: false }))).toEqual({ state: "none", paused });
    expect(await other.claim(claimOf(["free", "k"], { wait: false }))).toEqual({ state: "none" });
    await holder.release([claim]);
    expect(await other.claim(claimOf("k", { wait: false }))).toEqual({ state: "none", paused });
    for (const driver of [holder, other]) await driver.close();
  });
});
