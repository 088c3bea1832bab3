/** A grant's token is found again, whatever became of the members that had set it aside. */

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { ticketOf } from "../../src/drivers/quorum/tickets.ts";
import { tagOf } from "../../src/ids.ts";
import type { Answer, Claim } from "../../src/spi/driver.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { claimOf } from "../support/redis-scene.ts";
import type { Joined, Majority } from "./links.ts";
import { held, majority } from "./links.ts";

/** Each member in turn comes back empty, with time between for the holder to renew. */
async function restartedInTurn(it: Majority, { driver }: Joined, claim: Claim, members: number): Promise<void> {
  for (let at = 0; at < members; at++) {
    it.stores[at]?.restartEmpty();
    for (let renewals = 0; renewals < 2; renewals++) {
      await it.clock.pass(3_000);
      expect(await it.within(50, driver.renew([claim]))).toMatchObject([{ state: "held" }]);
    }
  }
}

const detached = async ({ driver }: Joined, claim: Claim): Promise<readonly boolean[]> =>
  (await driver.detach?.([claim])) ?? [];

for (const count of [3, 5]) {
  test(`of ${count} members each came back empty in one lock's life: it is listed as held, and travels with its token`, async () => {
    const it = majority(count);
    const [ours, other] = [await it.join(), await it.join()];
    const claim = claimOf("key", { ttlMs: 10_000, tokens: 3 });
    const { token } = held(await it.within(10, ours.driver.claim(claim)));
    await restartedInTurn(it, ours, claim, count);
    const [view] = await it.within(10, other.driver.list({ prefix: "" }, 10));
    expect(view).toMatchObject({ tag: tagOf(claim.id), answer: { state: "held", token } });
    expect(await it.within(10, detached(ours, claim))).toEqual([true]);
    expect(await it.within(10, other.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
    await restartedInTurn(it, other, claim, count);
    expect(await it.within(10, detached(other, claim))).toEqual([true]);
    expect(await it.within(10, ours.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
    expect(await it.within(10, ours.driver.release([claim]))).toEqual([true]);
    for (const { direct } of it.stores) expect(await direct().list({ prefix: "" }, 10)).toEqual([]);
    const next = held(await it.within(10, other.driver.claim(claimOf("key"))));
    expect(next.token).toBeGreaterThan(token + 2n);
  });
}

test("a lock whose tickets are not made again yet is not said to be lost when it is detached, and can be a moment later", async () => {
  const it = majority();
  const ours = await it.join();
  const claim = claimOf("key", { ttlMs: 10_000 });
  await it.within(10, ours.driver.claim(claim));
  // what a member forgets of it, its vote apart
  for (const { direct } of it.stores.slice(0, 2)) {
    const own = direct();
    for (const { lateMs } of ours.links) lateMs.ticket = 500;
    await it.within(10, own.release([ticketOf(claim, 0n)]));
  }
  await expect(it.within(2_000, detached(ours, claim))).rejects.toThrow(/stays ours/);
  expect(await it.within(2_000, detached(ours, claim))).toEqual([true]);
});

test("a claim that another client took up before it had a token is given one", async () => {
  const it = majority();
  const [ours, other] = [await it.join(), await it.join()];
  const before = claimOf("key");
  await it.within(10, ours.driver.claim(before));
  const claim = claimOf("key", { ttlMs: 20_000 });
  expect(await it.within(10, ours.driver.claim(claim))).toMatchObject({ state: "waiting" });
  await it.within(10, ours.driver.close());
  for (const { direct } of it.stores) await direct().release([before]);
  const [answer] = await it.within(10, other.driver.renew([claim]));
  expect(held(answer as Answer).token).toBeGreaterThan(0n);
});

for (const aheadMs of [48 * 3_600_000, -48 * 3_600_000]) {
  test(`a member whose clock is ${aheadMs / 3_600_000} hours ahead of the others' costs nobody a grant`, async () => {
    const clock = fakeClock();
    const walls = [0, aheadMs, 0];
    const drivers = walls.map((byMs) => memory({ store: memoryStore({ ...clock, wall: () => clock.wall() + byMs }) }));
    const driver = quorum(drivers, { clock });
    await driver.open(() => undefined);
    let last = 0n;
    for (let grants = 0; grants < 5; grants++) {
      const claim = claimOf("key", { ttlMs: 10_000 });
      const { token } = held(await driver.claim(claim));
      expect(token).toBeGreaterThan(last);
      expect(Number(token) / 1_000).toBeLessThan(clock.wall() + 60_000);
      last = token;
      await driver.release([claim]);
      await clock.pass(100);
    }
  });
}
