/** What every way to reach a Redis is held to. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { TestAPI } from "vitest";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { ConformanceOptions, Runner, TestStore } from "../../../src/conformance/suite.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { testDriver } from "../../client/suite.ts";
import { leakCheckedTest } from "../leak-checked-test.ts";
import type { RedisServer } from "./redis.ts";
import { redisUnavailableReason, startRedis } from "./redis.ts";
import { findRedisViolations } from "./redis-inspector.ts";

const isLongRun = process.env.HOLDFAST_LONG === "1";

export const REDIS_SUITE_OPTIONS: Omit<ConformanceOptions<TestStore>, "open"> = {
  verbs: ["detach", "revoke"],
  traits: { recall: "push" },
  timeScale: 0.5,
  keys: isLongRun ? 100_000 : 5_000,
  random: isLongRun ? { seeds: 200, steps: 200 } : { seeds: 3 },
};

/** What every client and topology shows also where time is short; with HOLDFAST_LONG=1 it shows everything. */
const SHORT_TOPICS: readonly string[] = ["lifecycle", "contention", "order", "lost replies", "pauses", "close"];

/** The runner of the suite; unless it may take long, it registers the short topics only. */
export function createShortRunner(): Runner {
  let depth = 0;
  return {
    describe(name, body) {
      if (depth === 1 && !isLongRun && !SHORT_TOPICS.includes(name)) return;
      describe(name, () => {
        depth++;
        body();
        depth--;
      });
    },
    test: leakCheckedTest(test as TestAPI),
  };
}

/** The conformance suite on a real server, each test with a prefix of its own. */
export function registerRedisConformance(
  name: string,
  driver: (server: RedisServer, prefix: string) => Driver,
  runner: Runner = { describe, test: leakCheckedTest(test as TestAPI) },
): void {
  withRedis((server, admin) => {
    testDriver(runner, name, {
      ...REDIS_SUITE_OPTIONS,
      open: async () => {
        const prefix = randomUUID();
        return {
          driver: () => driver(server(), prefix),
          inspect: () => findRedisViolations(admin(), prefix),
        };
      },
    });
  });
}

/**
 * Registers tests that have a server for themselves, and a connection to it that sees everything. The state of Redis is
 * judged after each of them. Without a Redis they are skipped, or fail where CI is true.
 */
export function withRedis(
  register: (server: () => RedisServer, admin: () => Redis) => void,
  settings: readonly string[] = [],
): void {
  const reason = redisUnavailableReason();
  if (reason !== null) {
    test.skipIf(process.env.CI !== "true")(`no Redis: ${reason}`, () => {
      throw new Error(reason);
    });
    return;
  }
  let server: RedisServer | undefined;
  let admin: Redis | undefined;
  // time to install it
  beforeAll(async () => {
    server = await startRedis(settings);
    admin = new Redis(server.port, "127.0.0.1");
    await admin.ping(); // else the first test would see it open
  }, 180_000);
  // no test has to remember it; hooks of the tests themselves come before
  const reportedViolations = new Set<string>();
  afterEach(async () => {
    const violations = (await findRedisViolations(admin as Redis)).filter(
      (violation) => !reportedViolations.has(violation),
    );
    for (const violation of violations) reportedViolations.add(violation); // what one test leaves behind is not another's fault
    expect(violations, "the state of Redis").toEqual([]);
  });
  afterAll(async () => {
    admin?.disconnect();
    await server?.stop();
  });
  register(
    () => server as RedisServer,
    () => admin as Redis,
  );
}
