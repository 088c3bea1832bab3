/** The claims and releases of one turn of the event loop share a command; each gets its own answer. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Answer, Claim, ClaimId, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

const exclusive = (key: string): LockSpec => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
/** A key of another bucket. */
const findForeignKey = (...keys: string[]): string =>
  ["x", "y", "z"].find((key) => !keys.map(toBucket).includes(toBucket(key))) as string;
/** Another key of its bucket. */
const findKeyBeside = (key: string): string =>
  Array.from({ length: 5_000 }, (_, index) => `beside ${index}`).find(
    (name) => toBucket(name) === toBucket(key),
  ) as string;
const makeBoth = (...keys: string[]): Claim => makeClaim(keys.map(exclusive));

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(async () => {
    await fixture.admin.config("SET", "maxmemory", "0");
    await fixture.close();
  });

  const countCommands = async (name = "evalsha"): Promise<number> =>
    Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(await fixture.admin.info("commandstats"))?.[1] ?? 0);
  const readTime = async (): Promise<number> => {
    const [seconds, micros] = await fixture.admin.time();
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  };
  const statesOf = (answers: readonly Answer[]): readonly string[] => answers.map(({ state }) => state);

  test("the calls of a turn share commands of 16 items, which do not wait for the end of the turn", async () => {
    const { driver } = await fixture.open();
    const claims = Array.from({ length: 45 }, (_, index) => makeClaim(`key ${index}`));
    await fixture.admin.config("RESETSTAT");
    const firstTurn = claims.slice(0, 37).map((claim) => driver.claim(claim));
    await nextTurn();
    const secondTurn = claims.slice(37).map((claim) => driver.claim(claim));
    expect(new Set(statesOf(await Promise.all([...firstTurn, ...secondTurn])))).toEqual(new Set(["held"]));
    expect(await countCommands()).toBe(4);
    // calls that follow from the answers of one command share the next one
    await Promise.all(claims.slice(0, 15).map((claim) => driver.release(toReleases(claim))));
    expect(await countCommands()).toBe(5);
    await driver.release(toReleases(...claims.slice(15)));
    expect(await countCommands()).toBe(6);
  });

  test("a command has a bounded number of items", async () => {
    const { driver } = await fixture.open();
    const claims = Array.from({ length: 1_100 }, (_, index) => makeClaim(`key ${index}`));
    await Promise.all(claims.map((claim) => driver.claim(claim)));
    await fixture.admin.config("RESETSTAT");
    expect(await driver.release(toReleases(...claims))).toEqual(claims.map(() => true));
    expect(await countCommands()).toBe(3);
    expect(await driver.release([])).toEqual([]);
    expect(await countCommands()).toBe(3);
  });

  test("releases stand before claims, and the claims of a key keep their order", async () => {
    const { driver } = await fixture.open();
    const [holder, both, next, last] = [makeClaim("a"), makeBoth("a", "b"), makeClaim("a"), makeClaim("b")];
    await driver.claim(holder);
    const claimed = Promise.all([both, next, last].map((claim) => driver.claim(claim)));
    expect(await driver.release(toReleases(holder))).toEqual([true]);
    expect(statesOf(await claimed)).toEqual(["held", "waiting", "waiting"]);
    await driver.release(toReleases(both, next, last));
  });

  test("a waiter of another process comes before a claim of the turn in which the holder releases", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [holder, waiter, next] = [makeClaim("a"), makeClaim("a"), makeClaim("a")];
    await lockClient.claimHeld(holder);
    await other.claim(waiter);
    const claimed = lockClient.claim(next);
    await lockClient.driver.release(toReleases(holder));
    expect((await claimed).state).toBe("waiting");
    await until(() => other.pushes.some(({ id }) => id === waiter.id), { within: 5_000, what: "the push" });
    await other.driver.release(toReleases(waiter));
    await until(() => lockClient.pushes.some(({ id }) => id === next.id), { within: 5_000, what: "its push" });
    await lockClient.driver.release(toReleases(next));
  });

  test("a holder that releases after the end of its lease learns of that, and the next claim is granted", async () => {
    const { driver } = await fixture.open();
    const [late, next] = [makeClaim("key", { ttlMs: 300 }), makeClaim("key", { ttlMs: 60_000 })];
    expect(statesOf([await driver.claim(late), await driver.claim(next)])).toEqual(["held", "waiting"]);
    const claimedBefore = await readTime();
    await until(async () => (await readTime()) > claimedBefore + 300, { within: 5_000, what: "the end of the lease" });
    expect(await driver.release(toReleases(late))).toEqual([false]);
    expect(await driver.claim(late)).toEqual({ state: "none", reason: "expired" });
    expect((await driver.claim(next)).state).toBe("held");
    await driver.release(toReleases(next));
  });

  test("an item that Redis refuses fails alone, wherever it stands", async () => {
    const { driver } = await fixture.open();
    const [holder, waiter, gone] = [makeClaim("a"), makeClaim("a"), makeClaim("b")];
    for (const claim of [holder, waiter, gone]) await driver.claim(claim);
    const foreign = findForeignKey("a", "b", "free");
    await fixture.admin.set(fixture.hashOf(foreign), "not ours", "PX", 60_000);
    const broken = [makeClaim(foreign), makeBoth("free", foreign), makeClaim(foreign)] as const;
    const whole = [makeClaim("free"), makeClaim("b", { wait: false }), makeClaim("free", { wait: false })] as const;
    const results = Promise.allSettled([
      driver.claim(broken[0]),
      driver.claim(broken[1]),
      ...whole.map((claim) => driver.claim(claim)),
      driver.release(toReleases(broken[2])),
      driver.release(toReleases(holder)),
      driver.release(toReleases(gone)),
    ]);
    const values = (await results).map((result) => {
      if (result.status === "rejected") return String(result.reason);
      return "state" in result.value ? result.value.state : result.value[0];
    });
    expect(values).toEqual([
      expect.stringMatching(/WRONGTYPE/),
      expect.stringMatching(/WRONGTYPE/),
      "held",
      "held",
      "none",
      expect.stringMatching(/WRONGTYPE/),
      true,
      true,
    ]);
    expect(((await driver.renew([waiter]))[0] as Answer).state).toBe("held");
    await fixture.admin.del(fixture.hashOf(foreign));
    await driver.release([...toReleases(waiter, ...whole), { claim: broken[1], hasUnansweredClaim: true }]);
  });

  test("an item that is executed again counts no permit twice, and recalls the holder", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const permit = (): Claim => makeClaim([{ key: "pool", permits: 1, limit: 3 }]);
    const [first, second, third] = [permit(), permit(), permit()];
    for (const claim of [first, second]) await lockClient.claimHeld(claim);
    const readers = [1, 2].map(() => makeClaim([{ key: "a", permits: 1, limit: ALL_PERMITS }], { recall: true }));
    for (const claim of readers) await lockClient.claimHeld(claim);
    const writer = makeClaim("a");
    const foreign = findForeignKey("pool", "a");
    await fixture.admin.set(fixture.hashOf(foreign), "not ours", "PX", 60_000);
    const claimed = [third, writer, makeClaim(foreign)].map((claim) => other.driver.claim(claim));
    const values = (await Promise.allSettled(claimed)).map((result) =>
      result.status === "fulfilled" ? result.value.state : String(result.reason),
    );
    expect(values).toEqual(["held", "waiting", expect.stringMatching(/WRONGTYPE/)]);
    await until(() => readers.every(({ id }) => lockClient.recalls.includes(id)), {
      within: 5_000,
      what: "the recalls",
    });
    await fixture.admin.del(fixture.hashOf(foreign));
    await other.driver.release(toReleases(third, writer));
    await lockClient.driver.release(toReleases(first, second, ...readers));
  });

  test("a claim that is made again after the end of its tombstone keeps its record, although stale fields are looked for", async () => {
    const { driver, claimHeld, renewOnce } = await fixture.open();
    const other = findKeyBeside("a");
    const [holder, again] = [makeClaim("a"), makeClaim("a", { ttlMs: 100 })];
    const seeker = makeClaim(other, { id: `${randomId().slice(0, -1)}a` as ClaimId }); // one in 32 looks for stale fields
    await driver.release([{ claim: again, hasUnansweredClaim: true }]);
    await claimHeld(holder);
    await until(
      async () =>
        Number((await fixture.admin.hget(fixture.hashOf("a"), `c:${again.id}`))?.split(" ")[1]) < (await readTime()),
      { within: 5_000, what: "the end of the tombstone" },
    );
    const answers = await Promise.all([seeker, { ...again, ttlMs: 60_000 }].map((claim) => driver.claim(claim)));
    expect(statesOf(answers)).toEqual(["held", "waiting"]);
    expect((await renewOnce({ ...again, ttlMs: 60_000 })).state).toBe("waiting");
    await driver.release(toReleases(holder, { ...again, ttlMs: 60_000 }, seeker));
  });

  test("the hash of a bucket that was evicted does not come back without a time to live", async () => {
    const { driver, claimHeld, renewOnce } = await fixture.open();
    const holder = makeClaim("a");
    const waiter = makeBoth("a", findForeignKey("a"));
    await claimHeld(holder);
    expect((await driver.claim({ ...waiter, ttlMs: 1_000 })).state).toBe("waiting");
    await fixture.admin.del(fixture.hashOf(findForeignKey("a")));
    let lowest = Number.POSITIVE_INFINITY;
    const restartsLease = async (): Promise<boolean> => {
      const answer = await renewOnce({ ...waiter, ttlMs: 1_000 });
      if (answer.state !== "waiting") throw new Error(`it is ${answer.state}`);
      const isRestarted = answer.remainingMs > lowest;
      lowest = answer.remainingMs;
      return isRestarted;
    };
    await until(restartsLease, { within: 5_000, what: "a renewal that restarts the lease" });
    expect(await fixture.admin.pttl(fixture.hashOf(findForeignKey("a")))).not.toBe(-1);
    await driver.release(toReleases(holder, { ...waiter, ttlMs: 1_000 }));
  });

  test("when memory is full, releases succeed and grant, and claims alone are refused", async () => {
    const { driver } = await fixture.open();
    const [holder, waiter, other] = [makeClaim("a"), makeClaim("a"), makeClaim("b")];
    for (const claim of [holder, waiter, other]) await driver.claim(claim);
    await fixture.admin.config("SET", "maxmemory", "1");
    const refused = ["a", "c", "d"].map((key) => driver.claim(makeClaim(key)));
    for (const result of await Promise.allSettled(refused))
      expect(String((result as PromiseRejectedResult).reason)).toMatch(/OOM/);
    const claims = [makeClaim("c"), makeClaim("a")];
    const claimed = Promise.all(claims.map((claim) => driver.claim(claim)));
    expect(await driver.release(toReleases(holder, other))).toEqual([true, true]);
    expect(statesOf(await claimed), "after a write that frees memory Redis refuses nothing").toEqual([
      "held",
      "waiting",
    ]);
    expect(((await driver.renew([waiter]))[0] as Answer).state).toBe("held");
    await driver.release(toReleases(waiter, ...claims));
  });

  test("a command that is late is late for each of its calls, and what it did is found or undone", async () => {
    const { driver, pushes } = await fixture.open(
      redis(() => new Redis(server().port, "127.0.0.1"), { prefix: fixture.prefix, commandTimeoutMs: 300 }),
    );
    const [holder, kept, abandoned] = [makeClaim("a"), makeClaim("b"), makeClaim("c")];
    const release = () => driver.release([{ claim: abandoned, hasUnansweredClaim: true }]);
    await driver.claim(holder);
    server().signal("SIGSTOP");
    try {
      const calls = [driver.claim(kept), driver.claim(abandoned), driver.release(toReleases(holder))];
      for (const result of await Promise.allSettled<unknown>(calls))
        expect(String((result as PromiseRejectedResult).reason)).toMatch(/no answer within 300 ms/);
      // the connection was given up: nothing was answered on it
      await expect(release()).rejects.toThrow();
    } finally {
      server().signal("SIGCONT");
    }
    // as the client does
    await until(
      () =>
        release().then(
          () => true,
          () => false,
        ),
      { within: 5_000, what: "the answer to the release" },
    );
    await until(() => pushes.some(({ id }) => id === null), { within: 5_000, what: "a recheck for all" });
    await until(async () => (await driver.claim(kept).catch(() => null))?.state === "held", {
      within: 5_000,
      what: "the claim",
    });
    await until(async () => (await driver.list({ prefix: "" }, { max: 10 })).items.length === 1, {
      within: 5_000,
      what: "the end of the others",
    });
    expect((await driver.claim(abandoned)).state).toBe("none");
    await driver.release(toReleases(kept));
  });
});
