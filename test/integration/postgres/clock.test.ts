// Clocks: a client's has no effect; the database's may step, and tokens rise all the same.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { OpenDriver, PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgresClock } from "../../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../../support/stores/sql-inspector.ts";
import { startTurnTaking } from "../../support/stores/turn-taking.ts";

const HOUR_MS = 3_600_000;

withPostgresClock((server, clock) => {
  let fixture: PostgresFixture;
  let one: OpenDriver;
  beforeEach(async () => {
    clock().shift(0);
    fixture = await createPostgresFixture(server());
    one = await fixture.open();
  });
  afterEach(async () => {
    vi.useRealTimers();
    await fixture.close();
  });

  const claimToken = async (key: string): Promise<bigint> => {
    const claim = makeClaim(key);
    const answer = await one.driver.claim(claim);
    await one.driver.release(toReleases(claim));
    return answer.state === "held" ? answer.token : 0n;
  };

  test("a client whose clock is an hour off gets the leases, times and tokens of the database", async () => {
    for (const byMs of [HOUR_MS, -HOUR_MS]) {
      const before = Date.now();
      vi.useFakeTimers({ toFake: ["Date"], now: before + byMs });
      const claim = makeClaim("key", { ttlMs: 10_000 });
      const answer = await one.driver.claim(claim);
      vi.useRealTimers();
      if (answer.state !== "held") throw new Error(answer.state);
      expect(answer.remainingMs).toBe(10_000);
      expect(Math.abs((answer.storeTimeMs ?? 0) - before)).toBeLessThan(HOUR_MS / 2);
      expect(Math.abs(Number(answer.token / 1_000n) - before)).toBeLessThan(HOUR_MS / 2);
      await one.driver.release(toReleases(claim));
    }
  });

  test("the database's clock is set back: tokens still rise, and a lease of a dead holder ends within its ttl", async () => {
    clock().shift(HOUR_MS);
    const before = await claimToken("key");
    const dead = makeClaim("other", { ttlMs: 1_500 });
    await one.driver.claim(dead);
    clock().shift(0);
    expect(await claimToken("key")).toBeGreaterThan(before);
    const next = makeClaim("other");
    expect(await one.driver.claim(next)).toMatchObject({ state: "waiting" });
    const isHeld = async (): Promise<boolean> => (await one.driver.renew([next]))[0]?.state === "held";
    await until(isHeld, { within: 6_000, what: "the end of the lease" });
    expect(await one.driver.renew([dead])).toEqual([{ state: "none", reason: "expired" }]);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("the database's clock is set forward past a lease: the holder is told, and the next token is higher", async () => {
    const [first, second] = [makeClaim("key", { ttlMs: 30_000 }), makeClaim("key", { ttlMs: 90_000 })];
    const held = await one.driver.claim(first);
    await one.driver.claim(second);
    clock().shift(31_000);
    const [answer] = await one.driver.renew([second]);
    if (answer?.state !== "held" || held.state !== "held") throw new Error("not held");
    expect(answer.token).toBeGreaterThan(held.token);
    expect(await one.driver.renew([first])).toEqual([{ state: "none", reason: "expired" }]);
  });

  test("the database's clock is stepped while the server restarts under load: no key is held twice, and tokens rise", async () => {
    const clients = Array.from({ length: 3 }, () => fixture.locks({ ttl: "60s", order: "strict" }));
    const inspect = () => findPostgresViolations(fixture.database.query, { isClockStepped: true });
    const load = await startTurnTaking(clients, inspect);
    // no step forward is longer than a lease: that would end it
    const steps = [-HOUR_MS, -HOUR_MS + 5_000, -2 * HOUR_MS];
    await load.survive(async () => {
      const restarting = server().restart();
      clock().shift(steps.shift() ?? 0);
      await restarting;
    }, steps.length);
    await load.finish();
  });

  test("a floor more than a day ahead is refused, so that no client can use up the tokens of a key", async () => {
    const day = 86_400_000_000n;
    const now = BigInt(Date.now()) * 1_000n;
    await expect(one.driver.claim(makeClaim("key", { floor: 2n ** 63n - 1n }))).rejects.toMatchObject({
      name: "StoreRefusedError",
    });
    const claim = makeClaim("key", { floor: now + day / 2n, tokenCount: 1_000 });
    const answer = await one.driver.claim(claim);
    expect(answer).toMatchObject({ state: "held", token: now + day / 2n, tokenCount: 1_000 });
    await one.driver.release(toReleases(claim));
    expect(await claimToken("key")).toBe(now + day / 2n + 1_000n);
  });

  test("the database's clock is set back by days: those who saw a token from before are granted the next one", async () => {
    clock().shift(3 * 24 * HOUR_MS);
    const floor = (await claimToken("key")) + 1n;
    clock().shift(0);
    await expect(one.driver.claim(makeClaim("key", { floor: floor + 1n }))).rejects.toThrow(/more than a day ahead/);
    expect(await one.driver.claim(makeClaim("key", { floor }))).toMatchObject({ state: "held", token: floor });
  });
});
