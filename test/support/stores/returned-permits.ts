/** Permits come back with a release, a revocation and the end of a lease, whoever else holds the key: a scenario for any store. */

import { expect } from "vitest";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../claims.ts";
import { toReleases } from "../releases.ts";

export async function expectReturnedPermits(driver: Driver): Promise<void> {
  const take = async (ttlMs = 60_000) => {
    const claim = makeClaim([{ key: "key", permits: 2, limit: 6 }], { wait: false, ttlMs });
    return { claim, answer: await driver.claim(claim) };
  };
  const [, two] = [await take(), await take()];
  let third = await take(300);
  expect([two.answer, third.answer]).toMatchObject([{ state: "held" }, { state: "held" }]);
  expect((await take()).answer.state).toBe("none");
  // a process that has died
  const takeAgain = async (): Promise<boolean> => {
    third = await take();
    return third.answer.state === "held";
  };
  await until(takeAgain, {
    within: 10_000,
    what: "the end of the lease",
  });
  expect((await take()).answer.state).toBe("none");
  await driver.release(toReleases(two.claim));
  const fourth = await take();
  expect(fourth.answer.state).toBe("held");
  expect((await take()).answer.state).toBe("none");
  if (third.answer.state !== "held") throw new Error("it is held");
  expect(await driver.revoke?.([{ key: "key", token: third.answer.token, now: true }])).toEqual([true]);
  expect((await take()).answer.state).toBe("held");
  expect((await take()).answer.state).toBe("none");
  // its lease ends earlier than that of all others
  await driver.detach?.([fourth.claim], 200);
  await until(async () => (await take()).answer.state === "held", {
    within: 10_000,
    what: "the end of the detached lock",
  });
  expect((await take()).answer.state).toBe("none");
}
