// The server's clock is stepped, and the clients' clocks are wrong: which lease is over, and which token is next.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDbClock } from "../../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../../support/stores/sql-inspector.ts";
import { startTurnTaking } from "../../support/stores/turn-taking.ts";

const HOUR_MS = 3_600_000;

withMariaDbClock((server, clock) => {
  let fixture: MysqlFixture;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
  });
  afterEach(async () => {
    clock().shift(0);
    await fixture.close();
    await fixture.database.drop();
  });

  test("set back, tokens rise nevertheless, and no lease is longer than its ttl", async () => {
    const driver = await fixture.open();
    const [first, second] = [makeClaim("key"), makeClaim("key")];
    const { token } = (await driver.claim(first)) as { token: bigint };
    clock().shift(-HOUR_MS);
    const [answer] = await driver.renew([first]);
    expect(answer).toMatchObject({ state: "held", token });
    expect((answer as { remainingMs: number }).remainingMs).toBeLessThanOrEqual(Number(first.ttlMs));
    await driver.release(toReleases(first));
    const next = (await driver.claim(second)) as { token: bigint };
    expect(next.token).toBeGreaterThan(token);
  });

  test("set back by days, those who saw a token from before are granted the next one", async () => {
    const driver = await fixture.open();
    clock().shift(3 * 86_400_000);
    const before = makeClaim("key");
    const floor = ((await driver.claim(before)) as { token: bigint }).token + 1n;
    await driver.release(toReleases(before));
    clock().shift(0);
    await expect(driver.claim(makeClaim("key", { floor: floor + 1n }))).rejects.toThrow(/more than a day ahead/);
    expect(await driver.claim(makeClaim("key", { floor }))).toMatchObject({ state: "held", token: floor });
  });

  test("set back, the row of a process that died is over after its ttl", async () => {
    const driver = await fixture.open();
    const [dead, next] = [makeClaim("key", { ttlMs: 1_000 }), makeClaim("key")];
    await driver.claim(dead);
    clock().shift(-HOUR_MS);
    expect(await driver.claim(next)).toMatchObject({ state: "waiting" });
    await until(async () => (await driver.renew([next]))[0]?.state === "held", { within: 10_000, what: "the grant" });
    expect(await fixture.violations()).toEqual([]);
  });

  test("stepped while the server restarts or crashes under load: no key is held twice, and tokens rise", async () => {
    const clients = Array.from({ length: 3 }, () => createLocks(fixture.driver(), { ttl: "60s", order: "strict" }));
    const inspect = () => findMySqlViolations((text) => fixture.database.query(text), { isClockStepped: true });
    const load = await startTurnTaking(clients, inspect);
    // no step forward is longer than a lease: that would end it
    const steps = [-HOUR_MS, -HOUR_MS + 5_000];
    await load.survive(async () => {
      const isCrash = steps.length === 1;
      const ending = isCrash ? server().crash() : server().stop();
      clock().shift(steps.shift() ?? 0);
      await ending;
      await server().start();
    }, steps.length);
    await load.finish();
    for (const locks of clients) await locks.close();
  });

  test("a client whose clock is an hour off gets the leases, times and tokens of the server", async () => {
    const driver = await fixture.open();
    for (const byMs of [HOUR_MS, -HOUR_MS]) {
      const before = Date.now();
      vi.useFakeTimers({ toFake: ["Date"], now: before + byMs });
      const claim = makeClaim("key", { ttlMs: 10_000 });
      const answer = await driver.claim(claim).finally(() => vi.useRealTimers());
      if (answer.state !== "held") throw new Error(answer.state);
      expect(answer.remainingMs).toBe(10_000);
      expect(Math.abs((answer.storeTimeMs ?? 0) - before)).toBeLessThan(HOUR_MS / 2);
      expect(Math.abs(Number(answer.token / 1_000n) - before)).toBeLessThan(HOUR_MS / 2);
      await driver.release(toReleases(claim));
    }
  });

  test("set forward, leases are over, and the next one is granted a higher token", async () => {
    const driver = await fixture.open();
    const [first, second] = [makeClaim("key"), makeClaim("key")];
    const { token } = (await driver.claim(first)) as { token: bigint };
    clock().shift(61_000);
    const next = (await driver.claim(second)) as { token: bigint };
    expect(next.token).toBeGreaterThan(token);
    expect(await driver.renew([first])).toEqual([{ state: "none" }]);
    expect(await fixture.violations()).toEqual([]);
  });
});
