// Many sessions at once, whatever isolation their sessions default to: no deadlock, and never two holders.

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { countRenewalsBeforeClaim } from "../../support/stores/busy-renewals.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const COUNT = 64;
/** A driver sends its calls for one bucket one after another, so only calls of different drivers meet in the server. */
const DRIVER_COUNT = 16;
const ISOLATION_LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

withMariaDb((server) => {
  let fixture: MysqlFixture;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
  });
  afterEach(async () => {
    await fixture.close();
    await fixture.database.drop();
  });

  const openWith = (isolation: string): Promise<Driver> =>
    fixture.open({
      pool: { connectionLimit: 8 },
      session: [`set session transaction isolation level ${isolation}`],
    });
  const openAll = (isolation: string): Promise<Driver[]> =>
    Promise.all(Array.from({ length: DRIVER_COUNT }, () => openWith(isolation)));
  const claimAll = (drivers: readonly Driver[], claims: readonly Claim[]): Promise<Answer[]> =>
    Promise.all(claims.map((claim, index) => (drivers[index % drivers.length] as Driver).claim(claim)));
  const countHeld = (answers: readonly Answer[]): number => answers.filter(({ state }) => state === "held").length;

  describe.each(ISOLATION_LEVELS)("in sessions whose default is %s", (isolation) => {
    test("64 first claims of one new key: one is held, all others wait, none fails", async () => {
      const drivers = await openAll(isolation);
      for (let round = 0; round < 3; round++) {
        const claims = Array.from({ length: COUNT }, () => makeClaim(`new ${round}`));
        const answers = await claimAll(drivers, claims);
        expect(countHeld(answers)).toBe(1);
        expect(answers.filter(({ state }) => state === "waiting")).toHaveLength(COUNT - 1);
        expect(await fixture.violations()).toEqual([]);
      }
    });

    test("first claims of 64 new keys at once are all held", async () => {
      const drivers = await openAll(isolation);
      for (let round = 0; round < 3; round++) {
        const claims = Array.from({ length: COUNT }, (_, index) => makeClaim(`key ${round} ${index}`));
        expect(countHeld(await claimAll(drivers, claims))).toBe(COUNT);
        expect(await drivers[0]?.release(toReleases(...claims))).toEqual(claims.map(() => true));
      }
      expect(await fixture.violations(true)).toEqual([]);
    });

    test("a waiter whose session read the queue before a grant does not become a second holder", async () => {
      const [driver, other] = [await openWith(isolation), await openWith(isolation)];
      const [holder, next, last] = [makeClaim("key", { ttlMs: 300 }), makeClaim("key"), makeClaim("key")];
      expect((await driver.claim(holder)).state).toBe("held");
      expect((await driver.claim(next)).state).toBe("waiting");
      // both meet the end of the first lease at the same time
      for (let held = 0; held === 0; ) {
        const answers = (await Promise.all([driver.renew([next]), other.claim(last)])).flat() as Answer[];
        held = countHeld(answers);
        expect(held).toBeLessThanOrEqual(1);
      }
      expect(await fixture.violations()).toEqual([]);
    });
  });

  test("batches with the same claims in opposite orders do not deadlock", async () => {
    const driver = await openWith("REPEATABLE READ");
    const claims = Array.from({ length: 200 }, (_, index) => makeClaim(`key ${index}`, { ttlMs: 30_000 }));
    await claimAll([driver], claims);
    // as after half of the lease: a renewal shortly after the claim would only read
    await fixture.database.query("update holdfast_4_claims set expires = expires - 15000000");
    const reversed = claims.toReversed();
    const renewals = Array.from({ length: 20 }, (_, round) => driver.renew(round % 2 === 0 ? claims : reversed));
    for (const answers of await Promise.all(renewals)) expect(countHeld(answers as Answer[])).toBe(200);
    const detached = await Promise.all([driver.detach?.(claims), driver.detach?.(reversed)]);
    expect(detached.flat()).toEqual(new Array(400).fill(true));
    const released = await Promise.all([
      driver.release(toReleases(...claims)),
      driver.release(toReleases(...reversed)),
    ]);
    expect(released.flat().filter(Boolean)).toHaveLength(200);
    expect(await fixture.violations(true)).toEqual([]);
  });

  test("claims that come and go on one key by 64 callers never overlap, and their tokens rise", async () => {
    const drivers = await openAll("REPEATABLE READ");
    let holder: Claim | null = null;
    let lastToken = 0n;
    const lockOnce = async (driver: Driver): Promise<void> => {
      const claim = makeClaim("hot");
      let answer: Answer | undefined = await driver.claim(claim);
      while (answer?.state === "waiting") [answer] = await driver.renew([claim]);
      if (answer?.state !== "held") throw new Error(`the claim is ${answer?.state}`);
      expect(holder).toBeNull();
      expect(answer.token).toBeGreaterThan(lastToken);
      [holder, lastToken] = [claim, answer.token];
      await Promise.resolve();
      holder = null;
      await driver.release(toReleases(claim));
    };
    await Promise.all(Array.from({ length: COUNT }, (_, index) => lockOnce(drivers[index % DRIVER_COUNT] as Driver)));
    expect(await fixture.violations(true)).toEqual([]);
  });

  test("rechecks without a pause do not keep a claim for the same bucket from being sent", async () => {
    expect(await countRenewalsBeforeClaim(await fixture.open(), 500)).toBeLessThan(500);
  });

  test("a holder that is told of the end of its lease leaves no one waiting for a free key", async () => {
    const [holder, other] = [await fixture.open(), await fixture.open()];
    for (const learn of [
      (claim: Claim) => holder.claim(claim),
      async (claim: Claim) => (await holder.renew([claim]))[0],
    ]) {
      const [held, waiting] = [makeClaim("key"), makeClaim("key")];
      await holder.claim(held);
      await holder.detach?.([held]);
      await other.claim(waiting);
      await fixture.database.query("update holdfast_4_claims set expires = 1 where id = ?", [held.id]);
      expect(await learn(held)).toEqual({ state: "none", reason: "expired" });
      expect(await fixture.violations()).toEqual([]);
      expect(await holder.renew([held])).toEqual([{ state: "none", reason: "expired" }]);
      expect(await other.release(toReleases(waiting))).toEqual([true]);
    }
  });
});
