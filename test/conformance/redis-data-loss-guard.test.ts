/** The suite with guardDataLoss, on stores that have been in use for long. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { testDriver } from "../client/suite.ts";
import { NO_EVENTS } from "../support/driver-events.ts";
import { withHeldTokens } from "../support/held-tokens.ts";
import { toReleases } from "../support/releases.ts";
import { makeClaim } from "../support/server-fixture.ts";
import type { RedisServer } from "../support/stores/redis.ts";
import { createShortRunner, REDIS_SUITE_OPTIONS, withRedis } from "../support/stores/redis-conformance.ts";
import { markLongInUse } from "../support/stores/redis-fixture.ts";
import { findRedisViolations } from "../support/stores/redis-inspector.ts";

const LONGEST_MS = 86_400_000;

function guardedDriver({ port }: RedisServer, prefix: string): Driver {
  return redis(() => new Redis(port, "127.0.0.1"), { prefix, guardDataLoss: { maxTtlMs: LONGEST_MS } });
}

withRedis((server, admin) => {
  testDriver(createShortRunner(), "Redis with guardDataLoss", {
    ...REDIS_SUITE_OPTIONS,
    skip: [
      { test: "the longest lease is kept", reason: "a guarded store grants none longer than it holds its breath" },
    ],
    open: async () => {
      const prefix = randomUUID();
      await markLongInUse(admin(), prefix);
      return { driver: () => guardedDriver(server(), prefix), inspect: () => findRedisViolations(admin(), prefix) };
    },
    // the first use of a prefix looks to the store like a loss of data
    openPaused: async () => {
      const prefix = randomUUID();
      return { driver: () => guardedDriver(server(), prefix), inspect: () => findRedisViolations(admin(), prefix) };
    },
  });

  test("in a grace period a key whose holder has placed its claim again is busy; the state of any other is unknown", async () => {
    const prefix = randomUUID();
    await markLongInUse(admin(), prefix);
    const [holder, other] = [withHeldTokens(guardedDriver(server(), prefix)), guardedDriver(server(), prefix)];
    for (const driver of [holder, other]) await driver.open(NO_EVENTS);
    const claim = makeClaim("k");
    expect((await holder.claim(claim)).state).toBe("held");
    await admin().flushall();
    expect((await holder.renew([claim]))[0]?.state).toBe("held");
    expect(await other.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
    const paused = { reason: "gracePeriod", remainingMs: expect.any(Number) };
    expect(await other.claim(makeClaim("free", { wait: false }))).toEqual({ state: "none", paused });
    expect(await other.claim(makeClaim(["free", "k"], { wait: false }))).toEqual({ state: "none" });
    await holder.release(toReleases(claim));
    expect(await other.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none", paused });
    for (const driver of [holder, other]) await driver.close();
  });
});
