/**
 * `SETNX`, then `EXPIRE`. Its fault: a crash between the two commands locks for ever. The article's lock and Holdfast's
 * pass through one check: die after any number of commands; the next claim must be granted when the lease has ended.
 */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { redis } from "../../../../src/drivers/redis/driver.ts";
import type { Driver } from "../../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../../support/driver-events.ts";
import { toReleases } from "../../../support/releases.ts";
import { withRedis } from "../../../support/stores/redis-conformance.ts";
import { makeClaim } from "../../../support/stores/redis-fixture.ts";
import { until } from "../../../support/until.ts";

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
  const deaths = async (take: TakeLock, again: () => Promise<boolean>): Promise<boolean[]> => {
    const freed: boolean[] = [];
    for (let alive = 1; ; alive++) {
      await admin.flushall();
      let sent = 0;
      const dead = new Promise<never>(() => undefined);
      const send: SendCommand = (command = "", ...words) => (sent++ < alive ? admin.call(command, ...words) : dead);
      const ended = take(send, "it").then(() => true);
      const isWhole = await Promise.race([
        ended,
        until(() => sent > alive, { within: 5_000, what: "death" }).then(() => false),
      ]);
      const within = { within: 2 * LEASE_MS, what: "the lock to be free" };
      freed.push(
        await until(again, within).then(
          () => true,
          () => false,
        ),
      );
      if (isWhole) return freed;
    }
  };

  describe("a crash between two commands", () => {
    test("locks for ever with the article's two commands, which proves the check", { timeout: 20_000 }, async () => {
      const again = (): Promise<boolean> =>
        articleLock((command = "", ...words) => admin.call(command, ...words), "next");
      expect(await deaths(articleLock, again)).toEqual([false, true]);
    });

    test("cannot happen with Holdfast: one command sets the claim and its lease", { timeout: 20_000 }, async () => {
      const prefix = randomUUID();
      const open = async (send: SendCommand): Promise<Driver> => {
        const client = new Redis(server().port, "127.0.0.1");
        const driver = redis(() => Object.assign(client, { call: send }), { prefix, warn: () => undefined });
        await driver.open(NO_EVENTS);
        return driver;
      };
      const whole: SendCommand = (command = "", ...words) => admin.call(command, ...words);
      const opened: Driver[] = [];
      let [counts, send]: [boolean, SendCommand] = [false, whole];
      const taker = await open((...words) => (counts ? send(...words) : whole(...words)));
      const next = await open(whole);
      opened.push(taker, next);
      const take: TakeLock = async (by) => {
        [counts, send] = [true, by];
        return (await taker.claim(makeClaim("lock", { ttlMs: LEASE_MS }))).state === "held";
      };
      const again = async (): Promise<boolean> => {
        const claim = makeClaim("lock", { ttlMs: LEASE_MS, wait: false });
        const { state } = await next.claim(claim);
        if (state === "held") await next.release(toReleases(claim));
        return state === "held";
      };
      // there is only one command, so there is no place in between to die at
      expect(await deaths(take, again)).toEqual([true]);
      for (const driver of opened) await driver.close();
    });
  });

  test("every lock has a lease, whatever the options", async () => {
    const prefix = randomUUID();
    const driver = redis(() => new Redis(server().port, "127.0.0.1"), { prefix, warn: () => undefined });
    await driver.open(NO_EVENTS);
    const claim = makeClaim("lock", { ttlMs: LEASE_MS });
    await driver.claim(claim);
    for (const key of await admin.keys(`${prefix}:1:*`)) expect(await admin.pttl(key), key).toBeGreaterThan(0);
    await driver.release(toReleases(claim));
    await driver.close();
  });
});
