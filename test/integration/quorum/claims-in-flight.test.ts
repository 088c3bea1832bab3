/** A call that arrives after its claim was released makes no abandoned entry, which would cost the next claim a lease. */

import { expect, test } from "vitest";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { FaultyLink, MemberStore } from "./faulty-links.ts";
import { createLinkedQuorum, DELAYED_MS, expectHeld } from "./faulty-links.ts";

test("a repeated release still informs a member about the claim in flight to it", async () => {
  const linkedQuorum = createLinkedQuorum();
  const client = await linkedQuorum.openClient();
  const [third, store] = [client.links[2] as FaultyLink, linkedQuorum.stores[2] as MemberStore];
  third.faultyVerb = "claim";
  third.fault = "late";
  const claim = makeClaim("key", { ttlMs: 10_000 });
  expectHeld(await linkedQuorum.settleWithin(10, client.driver.claim(claim)));
  third.faultyVerb = "release";
  third.fault = "silent";
  expect(await linkedQuorum.settleWithin(1_200, client.driver.release(toReleases(claim)))).toEqual([true]);
  third.fault = null;
  await linkedQuorum.settleWithin(100, client.driver.release(toReleases(claim)));
  await linkedQuorum.clock.advance(DELAYED_MS);
  expect((await store.direct().list({ prefix: "" }, { max: 10 })).items).toEqual([]);
});

test("an entry that is being restored when another client releases the lock is not placed", async () => {
  const linkedQuorum = createLinkedQuorum();
  const [client, other] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
  const [third, store] = [client.links[2] as FaultyLink, linkedQuorum.stores[2] as MemberStore];
  const claim = makeClaim("key", { ttlMs: 10_000 });
  expectHeld(await linkedQuorum.settleWithin(10, client.driver.claim(claim)));
  store.restartEmpty();
  third.faultyVerb = "claim";
  third.fault = "late";
  await linkedQuorum.settleWithin(10, client.driver.renew([claim]));
  expect(await linkedQuorum.settleWithin(10, other.driver.release(toReleases(claim)))).toEqual([true]);
  await linkedQuorum.clock.advance(DELAYED_MS);
  expect((await store.direct().list({ prefix: "" }, { max: 10 })).items).toEqual([]);
});
