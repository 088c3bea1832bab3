/**
 * `SETNX`, then `EXPIRE`. Its fault: a crash between the two commands locks for ever. The article's lock and Holdfast's
 * pass through one check: die after any number of commands; the next claim must be granted when the lease has ended.
 */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { redis } from "../../../../src/drivers/redis/driver.ts";
import type { Driver } from "../../../../src/spi/driver.ts";
import { until } from "../../../../src/testing/until.ts";
import { makeClaim } from "../../../support/claims.ts";
import { NO_EVENTS } from "../../../support/driver-events.ts";
import { toReleases } from "../../../support/releases.ts";
import { withRedis } from "../../../support/stores/redis-conformance.ts";

const LEASE_MS = 1_000;

/** Acquires the lock with these commands; false: it is held. */
type TakeLock = (send: SendCommand, owner: string) => Promise<boolean>;
type SendCommand = (...words: string[]) => Promise<unknown>;

/** As in the article. */
const articleLock: TakeLock = async (send, owner) => {
  if ((await send("SETNX", "lock", owner)) !== 1) return false;
  await send("EXPIRE", "lock", String(LEASE_MS / 1_000));
  return true;
};

withRedis((server) => {
  let admin: Redis;
  beforeEach(async () => {
    admin = new Redis(server().port, "127.0.0.1");
    await admin.flushall();
  });
  afterEach(() => admin.disconnect());

  /** The number of commands of one acquire; and for each smaller number: is the lock free again after one lease? */
  const deaths = async (takeLock: TakeLock, tryAgain: () => Promise<boolean>): Promise<boolean[]> => {
    const outcomes: boolean[] = [];
    for (let alive = 1; ; alive++) {
      await admin.flushall();
      let sentCount = 0;
      const never = new Promise<never>(() => undefined);
      const send: SendCommand = (command = "", ...args) => (sentCount++ < alive ? admin.call(command, ...args) : never);
      const ended = takeLock(send, "it").then(() => true);
      const isWhole = await Promise.race([
        ended,
        until(() => sentCount > alive, { within: 5_000, what: "death" }).then(() => false),
      ]);
      const untilOptions = { within: 2 * LEASE_MS, what: "the lock to be free" };
      outcomes.push(
        await until(tryAgain, untilOptions).then(
          () => true,
          () => false,
        ),
      );
      if (isWhole) return outcomes;
    }
  };

  describe("a crash between two commands", () => {
    test("locks for ever with the article's two commands, which proves the check", { timeout: 20_000 }, async () => {
      const tryAgain = (): Promise<boolean> =>
        articleLock((command = "", ...args) => admin.call(command, ...args), "next");
      expect(await deaths(articleLock, tryAgain)).toEqual([false, true]);
    });

    test("cannot happen with Holdfast: one command sets the claim and its lease", { timeout: 20_000 }, async () => {
      const prefix = randomUUID();
      const open = async (send: SendCommand): Promise<Driver> => {
        const client = new Redis(server().port, "127.0.0.1");
        const driver = redis(() => Object.assign(client, { call: send }), { prefix, warn: () => undefined });
        await driver.open(NO_EVENTS);
        return driver;
      };
      const sendAll: SendCommand = (command = "", ...args) => admin.call(command, ...args);
      const drivers: Driver[] = [];
      let [counts, send]: [boolean, SendCommand] = [false, sendAll];
      const driver = await open((...args) => (counts ? send(...args) : sendAll(...args)));
      const next = await open(sendAll);
      drivers.push(driver, next);
      const take: TakeLock = async (sender) => {
        [counts, send] = [true, sender];
        return (await driver.claim(makeClaim("lock", { ttlMs: LEASE_MS }))).state === "held";
      };
      const tryAgain = async (): Promise<boolean> => {
        const claim = makeClaim("lock", { ttlMs: LEASE_MS, wait: false });
        const { state } = await next.claim(claim);
        if (state === "held") await next.release(toReleases(claim));
        return state === "held";
      };
      // there is only one command, so there is no place in between to die at
      expect(await deaths(take, tryAgain)).toEqual([true]);
      for (const driver of drivers) await driver.close();
    });
  });

  test("every lock has a lease, whatever the options", async () => {
    const prefix = randomUUID();
    const driver = redis(() => new Redis(server().port, "127.0.0.1"), { prefix, warn: () => undefined });
    await driver.open(NO_EVENTS);
    const claim = makeClaim("lock", { ttlMs: LEASE_MS });
    await driver.claim(claim);
    for (const key of await admin.keys(`${prefix}:3:*`)) expect(await admin.pttl(key), key).toBeGreaterThan(0);
    await driver.release(toReleases(claim));
    await driver.close();
  });
});
