/** A grant's token is found again, whatever happened to the members that had reserved it. */

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { createTokenClaim } from "../../../src/drivers/quorum/tokens.ts";
import type { Answer, Claim } from "../../../src/spi/driver.ts";
import { publicTag } from "../../../src/util/ids.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { FakeClock, withWallOffset } from "../../support/fake-clock.ts";
import { toReleases } from "../../support/releases.ts";
import type { LinkedQuorum, QuorumClient } from "./faulty-links.ts";
import { createLinkedQuorum, detachClaim, expectHeld } from "./faulty-links.ts";

/** Each member in turn comes back empty, with time between for the holder to renew. */
async function restartMembersInTurn(
  linkedQuorum: LinkedQuorum,
  { driver }: QuorumClient,
  claim: Claim,
  members: number,
): Promise<void> {
  for (let index = 0; index < members; index++) {
    linkedQuorum.stores[index]?.restartEmpty();
    for (let renewals = 0; renewals < 2; renewals++) {
      await linkedQuorum.clock.advance(3_000);
      expect(await linkedQuorum.settleWithin(50, driver.renew([claim]))).toMatchObject([{ state: "held" }]);
    }
  }
}

for (const count of [3, 5]) {
  test(`of ${count} members each came back empty during one lock: it is listed as held, and is transferred with its token`, async () => {
    const linkedQuorum = createLinkedQuorum(count);
    const [client, other] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
    const claim = makeClaim("key", { ttlMs: 10_000, tokenCount: 3 });
    const { token } = expectHeld(await linkedQuorum.settleWithin(10, client.driver.claim(claim)));
    await restartMembersInTurn(linkedQuorum, client, claim, count);
    const {
      items: [view],
    } = await linkedQuorum.settleWithin(10, other.driver.list({ prefix: "" }, { max: 10 }));
    expect(view).toMatchObject({ tag: publicTag(claim.id), answer: { state: "held", token } });
    expect(await linkedQuorum.settleWithin(10, detachClaim(client, claim))).toEqual([true]);
    expect(await linkedQuorum.settleWithin(10, other.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
    await restartMembersInTurn(linkedQuorum, other, claim, count);
    expect(await linkedQuorum.settleWithin(10, detachClaim(other, claim))).toEqual([true]);
    expect(await linkedQuorum.settleWithin(10, client.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
    expect(await linkedQuorum.settleWithin(10, client.driver.release(toReleases(claim)))).toEqual([true]);
    for (const { direct } of linkedQuorum.stores)
      expect((await direct().list({ prefix: "" }, { max: 10 })).items).toEqual([]);
    const next = expectHeld(await linkedQuorum.settleWithin(10, other.driver.claim(makeClaim("key"))));
    expect(next.token).toBeGreaterThan(token + 2n);
  });
}

test("a lock whose tickets are not restored yet is not reported as lost by detach, and can be detached a moment later", async () => {
  const linkedQuorum = createLinkedQuorum();
  const client = await linkedQuorum.openClient();
  const claim = makeClaim("key", { ttlMs: 10_000 });
  await linkedQuorum.settleWithin(10, client.driver.claim(claim));
  // a member loses everything but the vote
  for (const { direct } of linkedQuorum.stores.slice(0, 2)) {
    const own = direct();
    for (const { delayMs } of client.links) delayMs.ticket = 500;
    await linkedQuorum.settleWithin(10, own.release(toReleases(createTokenClaim(claim, 0n))));
  }
  await expect(linkedQuorum.settleWithin(2_000, detachClaim(client, claim))).rejects.toThrow(
    /cannot detach: fewer than a majority/,
  );
  expect(await linkedQuorum.settleWithin(2_000, detachClaim(client, claim))).toEqual([true]);
});

test("a claim attached by another client before it had a token is given one", async () => {
  const linkedQuorum = createLinkedQuorum();
  const [client, other] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
  const before = makeClaim("key");
  await linkedQuorum.settleWithin(10, client.driver.claim(before));
  const claim = makeClaim("key", { ttlMs: 20_000 });
  expect(await linkedQuorum.settleWithin(10, client.driver.claim(claim))).toMatchObject({ state: "waiting" });
  await linkedQuorum.settleWithin(10, client.driver.close());
  for (const { direct } of linkedQuorum.stores) await direct().release(toReleases(before));
  const [answer] = await linkedQuorum.settleWithin(10, other.driver.renew([claim]));
  expect(expectHeld(answer as Answer).token).toBeGreaterThan(0n);
});

for (const aheadMs of [48 * 3_600_000, -48 * 3_600_000]) {
  test(`a member whose clock is ${aheadMs / 3_600_000} hours ahead of the others' costs no claim its grant`, async () => {
    const clock = new FakeClock();
    const walls = [0, aheadMs, 0];
    const drivers = walls.map((byMs) => memory({ store: memoryStore(withWallOffset(clock, () => byMs)) }));
    const driver = quorum(drivers, { clock });
    await driver.open(NO_EVENTS);
    let last = 0n;
    for (let grants = 0; grants < 5; grants++) {
      const claim = makeClaim("key", { ttlMs: 10_000 });
      const { token } = expectHeld(await driver.claim(claim));
      expect(token).toBeGreaterThan(last);
      expect(Number(token) / 1_000).toBeLessThan(clock.wall() + 60_000);
      last = token;
      await driver.release(toReleases(claim));
      await clock.advance(100);
    }
  });
}
