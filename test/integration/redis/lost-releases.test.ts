/** Releases that a promoted replica has missed: the store has claims that are gone, and their processes give them back. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { toReference } from "../../../src/client/transfer.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import DETACH from "../../../src/drivers/redis/lua/detach.lua";
import TURN from "../../../src/drivers/redis/lua/turn.lua";
import {
  encodeClaimItem,
  encodeGiveBackItem,
  encodeName,
  encodeReleaseItem,
} from "../../../src/drivers/redis/script-codec.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks, LockTimeoutError } from "../../../src/index.ts";
import type { DetachedClaim } from "../../../src/protocol/lock-reference.ts";
import { decodeReference } from "../../../src/protocol/lock-reference.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { expectFreeSoon, SOON_MS } from "../../support/stores/lost-releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

const KEY = "a key with spaces";

withRedis((server) => {
  let fixture: RedisFixture;
  let clients: Locks[] = [];
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    clients = [];
    await fixture.close();
  });

  const createDriver = (): Driver => {
    const connectRedis = (): Redis =>
      new Redis(server().port, "127.0.0.1", { retryStrategy: () => 20 }).on("error", () => undefined);
    return redis(connectRedis, { prefix: fixture.prefix });
  };
  const openClient = (): Locks => {
    const locks = createLocks(createDriver(), { cache: "60s" });
    clients.push(locks);
    return locks;
  };

  /** Keeps the whole state as it is now; the result brings it back, as the promotion of a replica does that has missed what followed. */
  async function keepState(): Promise<() => Promise<void>> {
    const names = await fixture.keys();
    const dumps = await Promise.all(
      names.map(async (name) => ({
        name,
        dump: await fixture.admin.dumpBuffer(name),
        ttl: await fixture.admin.pttl(name),
      })),
    );
    return async () => {
      for (const { name, dump, ttl } of dumps) await fixture.admin.restore(name, Math.max(ttl, 0), dump, "REPLACE");
    };
  }

  const breakConnections = (): Promise<unknown> =>
    fixture.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  const waitingCount = (): Promise<number> => fixture.admin.zcard(`${fixture.prefix}:3:{${toBucket(KEY)}}:w:${KEY}`);

  test("of a holder: a recall of a lock that the process does not have makes it release again", async () => {
    const [one, other] = [openClient(), openClient()];
    const lock = await one.acquire(KEY, { cache: 0 });
    await other.using("other", () => undefined);
    const bringBack = await keepState();
    await lock.release();
    await bringBack();
    await breakConnections();
    await expectFreeSoon(other, KEY);
  });

  test.each<[string, (locks: Locks) => Promise<Lock>, (locks: Locks) => Promise<Lock>]>([
    ["a reader", (locks) => locks.rw(KEY).read.acquire(), (locks) => locks.rw(KEY).write.acquire({ wait: SOON_MS })],
    [
      "a permit",
      (locks) => locks.semaphore(KEY, 1).acquire(),
      (locks) => locks.semaphore(KEY, 1).acquire({ wait: SOON_MS }),
    ],
    [
      "a lock in strict order",
      (locks) => locks.acquire(KEY, { cache: 0, order: "strict" }),
      (locks) => locks.acquire(KEY, { cache: 0, order: "strict", wait: SOON_MS }),
    ],
  ])("of %s, which is never recalled: it is released again after the break", async (_, acquire, acquireAgain) => {
    const [one, other] = [openClient(), openClient()];
    const lock = await acquire(one);
    await other.using("other", () => undefined);
    const bringBack = await keepState();
    await lock.release();
    await bringBack();
    await breakConnections();
    expect(await (await acquireAgain(other)).release()).toBe(true);
  });

  test("of a holder, and no connection broke: the second recall does", async () => {
    const [one, other] = [openClient(), openClient()];
    const lock = await one.acquire(KEY, { cache: 0 });
    const bringBack = await keepState();
    await lock.release();
    await bringBack();
    await expectFreeSoon(other, KEY);
  });

  test.each([
    ["whose holder is gone, too", true],
    ["whose holder releases later", false],
  ])("of a waiter, %s: a grant to a request that is gone makes its process release it", async (_, isHolderGone) => {
    const [one, other, third] = [openClient(), openClient(), openClient()];
    await third.using("other", () => undefined);
    const lock = await one.acquire(KEY, { cache: 0 });
    const controller = new AbortController();
    const waiting = other.acquire(KEY, { signal: controller.signal });
    await until(async () => (await waitingCount()) === 1, { within: SOON_MS, what: "the waiter" });
    const bringBack = await keepState();
    controller.abort(new Error("given up"));
    await expect(waiting).rejects.toThrow("given up");
    if (isHolderGone) await lock.release();
    await until(async () => (await waitingCount()) === 0, { within: SOON_MS, what: "its end" });
    await bringBack();
    if (isHolderGone) {
      await breakConnections();
      return expectFreeSoon(third, KEY);
    }
    const free = expectFreeSoon(third, KEY);
    await until(async () => (await waitingCount()) === 2, { within: SOON_MS, what: "the waiter behind it" });
    await lock.release();
    await free;
  });

  test("a claim that another process uses, and that this one renewed once, is not released", async () => {
    const [parent, other] = [openClient(), openClient()];
    const lock = await parent.acquire(KEY, { cache: 0 });
    const [{ claim }] = decodeReference(toReference(lock)) as [DetachedClaim];
    const driver = createDriver();
    const child = createLocks(driver);
    clients.push(child);
    await child.using("other", () => undefined);
    // as attach() does, of which the answer is lost
    expect(await driver.renew([claim])).toMatchObject([{ state: "held" }]);
    await expect(other.acquire(KEY, { wait: 1_500 })).rejects.toThrow(LockTimeoutError);
    expect(await lock.release()).toBe(true);
  });

  test("of several keys", async () => {
    const [one, other] = [openClient(), openClient()];
    const lock = await one.all(KEY, "second", "third").acquire({ cache: 0 });
    const bringBack = await keepState();
    await lock.release();
    await bringBack();
    await breakConnections();
    await expectFreeSoon(other, KEY);
  });

  test("a push never ends a lock that was detached, nor one that another process has", async () => {
    const [one, other] = [openClient(), openClient()];
    const recordOf = async (key: string): Promise<string> =>
      (await fixture.admin.hget(fixture.hashOf(key), `k:${key}`)) ?? "";
    const recallAll = async (key: string): Promise<void> => {
      const [, id] =
        /^.{36}(\w+) /s.exec(
          (await fixture.admin.hgetBuffer(fixture.hashOf(key), `k:${key}`))?.toString("latin1") ?? "",
        ) ?? [];
      for (const channel of (await fixture.admin.pubsub("CHANNELS", `${fixture.prefix}:3:inbox:*`)) as string[])
        for (let times = 0; times < 3; times++)
          await fixture.admin.publish(channel, `${id} recalled ${toBucket(key)}${key}`);
    };
    const detachedLock = await one.acquire(KEY);
    const reference = await detachedLock.detach();
    const otherLock = await other.acquire("other", { cache: 0 });
    await breakConnections();
    await one.using("third", () => undefined);
    await recallAll(KEY);
    // an answer to a call that was sent later: whatever the pushes caused has been carried out
    await one.using("third", () => undefined);
    await other.using("third", () => undefined);
    expect(await recordOf(KEY)).not.toBe("");
    const attachedLock = await other.attach(reference);
    await recallAll(KEY);
    await recallAll("other");
    await one.using("third", () => undefined);
    await other.using("third", () => undefined);
    expect(await recordOf(KEY)).not.toBe("");
    expect(await attachedLock.release()).toBe(true);
    expect(await otherLock.release()).toBe(true);
  });

  test("the script gives a claim back only for the process that made it, and not once it is detached", async () => {
    const root = `${fixture.prefix}:3:`;
    const call = (script: { readonly text: string }, inbox: string, item: string): Promise<unknown> =>
      fixture.admin.call("EVAL", script.text, "1", `${root}{00}:h`, root, inbox, "", item);
    const [own, foreign] = [`${root}inbox:own`, `${root}inbox:foreign`];
    const giveBack = async (inbox: string, { id, locks: [{ key }] }: Claim): Promise<string> =>
      String(await call(TURN, inbox, encodeGiveBackItem(id, toBucket(key) + key)));
    const [claim, detached] = [makeClaim("key"), makeClaim("detached key")];
    for (const one of [claim, detached]) expect(String(await call(TURN, own, encodeClaimItem(one)))).toMatch(/^h /);
    expect(await giveBack(foreign, claim)).toBe("0");
    expect(await giveBack(own, claim)).toBe("1");
    expect(await giveBack(own, claim)).toBe("0");
    await call(DETACH, own, `60000 ${encodeName(detached)}`);
    expect(await giveBack(own, detached)).toBe("0");
    expect(await call(TURN, own, encodeReleaseItem({ claim: detached, hasUnansweredClaim: false }))).toBe("1");
  });
});
