/** The claims and releases of one turn of the event loop share a command; each gets its own answer. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/script-codec.ts";
import type { Answer, Claim, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { until } from "../../support/until.ts";

const exclusive = (key: string): LockSpec => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS });
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

  test("an item that Redis refuses fails alone, wherever it stands", async () => {
    const { driver } = await fixture.open();
    const [holder, waiter, gone] = [makeClaim("a"), makeClaim("a"), makeClaim("b")];
    for (const claim of [holder, waiter, gone]) await driver.claim(claim);
    const foreign = ["x", "y"].find((key) => !["a", "b", "free"].map(toBucket).includes(toBucket(key))) as string;
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
    await driver.claim(holder);
    server().signal("SIGSTOP");
    try {
      const calls = [driver.claim(kept), driver.claim(abandoned), driver.release(toReleases(holder))];
      for (const result of await Promise.allSettled<unknown>(calls))
        expect(String((result as PromiseRejectedResult).reason)).toMatch(/no answer within 300 ms/);
      await expect(driver.release([{ claim: abandoned, hasUnansweredClaim: true }])).rejects.toThrow("no answer");
    } finally {
      server().signal("SIGCONT");
    }
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
