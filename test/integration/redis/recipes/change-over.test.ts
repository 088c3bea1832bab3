/**
 * The change-over from another lock, as docs/guide/coming-from.md describes it: programs with the old lock, with both, with the new
 * lock. Those that may run at the same time exclude each other and all get their turns; old and new ones do not exclude each other.
 */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { redis } from "../../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../../src/index.ts";
import { createLocks } from "../../../../src/index.ts";
import { until } from "../../../../src/testing/until.ts";
import { checkLeaksAfterEach } from "../../../support/leak-check.ts";
import { withRedis } from "../../../support/stores/redis-conformance.ts";

const KEY = "invoice";
const OLD_KEY = "old:invoice";
const ROUNDS = 12;

type Program = (section: () => Promise<void>) => Promise<void>;

checkLeaksAfterEach();

withRedis((server) => {
  let admin: Redis;
  const clients: Redis[] = [];
  const lockClients: Locks[] = [];
  beforeEach(async () => {
    admin = new Redis(server().port, "127.0.0.1");
    await admin.flushall();
  });
  afterEach(async () => {
    for (const locks of lockClients.splice(0)) await locks.close();
    for (const client of clients.splice(0)) client.disconnect();
    admin.disconnect();
  });

  const connect = (): Redis => {
    const client = new Redis(server().port, "127.0.0.1");
    clients.push(client);
    return client;
  };

  const openLocks = (): Locks => {
    const locks = createLocks(redis(connect(), { warn: () => undefined }));
    lockClients.push(locks);
    return locks;
  };

  /** `SET key random NX PX`, deleted only by its owner. */
  const old = (): Program => {
    const client = connect();
    return async (section) => {
      const mine = randomUUID();
      await until(async () => (await client.set(OLD_KEY, mine, "PX", 30_000, "NX")) !== null, {
        within: 20_000,
        what: "the old lock",
      });
      try {
        await section();
      } finally {
        const script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        await client.eval(script, 1, OLD_KEY, mine);
      }
    };
  };

  const both = (): Program => {
    const locks = openLocks();
    const withOldLock = old();
    return (section) => locks.using(KEY, () => withOldLock(section));
  };

  const current = (): Program => {
    const locks = openLocks();
    return (section) => locks.using(KEY, section);
  };

  /** Every program has all its turns. The highest number of sections that Redis saw at the same time. */
  const run = async (programs: readonly Program[]): Promise<number> => {
    let highest = 0;
    const section = async (): Promise<void> => {
      highest = Math.max(highest, await admin.incr("inside"));
      await admin.decr("inside");
    };
    await Promise.all(
      programs.map(async (program) => {
        for (let round = 0; round < ROUNDS; round++) await program(section);
      }),
    );
    return highest;
  };

  test("old programs and those with both exclude each other", async () => {
    expect(await run([old(), old(), both(), both()])).toBe(1);
  });

  test("programs with both and new ones exclude each other", async () => {
    expect(await run([both(), both(), current(), current()])).toBe(1);
  });

  test("old and new programs do not: they must never run at the same time", async () => {
    let wasInside = false;
    await old()(async () => {
      await current()(async () => {
        wasInside = true;
      });
    });
    expect(wasInside).toBe(true);
  });
});
