/** What every way to reach a Redis is held to. */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { TestAPI } from "vitest";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { ConformanceOptions, Runner, Store } from "../../src/conformance/suite.ts";
import { conformance } from "../../src/conformance/suite.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { redisViolations } from "./inspect-redis.ts";
import type { RedisServer } from "./services/redis.ts";
import { startRedis, whyNoRedis } from "./services/redis.ts";
import { watched } from "./watched-test.ts";

const long = process.env.HOLDFAST_LONG === "1";

export const OPTIONS: Omit<ConformanceOptions<Store>, "open"> = {
  verbs: ["detach", "revoke"],
  timeScale: 0.5,
  keys: long ? 100_000 : 5_000,
  random: long ? { seeds: 200, steps: 200 } : { seeds: 3 },
};

/** What every client and topology shows also where time is short; with HOLDFAST_LONG=1 it shows everything. */
const SHORT: readonly string[] = ["lifecycle", "contention", "order", "lost replies", "pauses", "close"];

/** The runner of the suite; unless it may take long, it registers the short topics only. */
export function shortRunner(): Runner {
  let depth = 0;
  return {
    describe(name, body) {
      if (depth === 1 && !long && !SHORT.includes(name)) return;
      describe(name, () => {
        depth++;
        body();
        depth--;
      });
    },
    test: watched(test as TestAPI),
  };
}

/** The conformance suite on a real server, each test with a prefix of its own. */
export function redisConforms(name: string, driver: (server: RedisServer, prefix: string) => Driver): void {
  withRedis((server, admin) => {
    conformance({ describe, test: watched(test as TestAPI) }, name, {
      ...OPTIONS,
      open: async () => {
        const prefix = randomUUID();
        return {
          driver: () => driver(server(), prefix),
          inspect: () => redisViolations(admin(), prefix),
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
  const reason = whyNoRedis();
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
  const told = new Set<string>();
  afterEach(async () => {
    const violations = (await redisViolations(admin as Redis)).filter((one) => !told.has(one));
    for (const one of violations) told.add(one); // what one test leaves behind is not another's fault
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
