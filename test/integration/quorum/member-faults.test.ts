/** Faults on the links of a majority, one at a time: each is forced, none is left to chance. */

import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { Member } from "../../../src/drivers/quorum/member.ts";
import { createTokenClaim } from "../../../src/drivers/quorum/tokens.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { Answer, Claim } from "../../../src/spi/driver.ts";
import { chaos } from "../../../src/testing/chaos/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { createClaimLedger } from "../../support/claim-ledger.ts";
import { makeClaim } from "../../support/claims.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { toReleases } from "../../support/releases.ts";
import type { FaultyLink, LinkedQuorum, MemberStore, QuorumClient } from "./faulty-links.ts";
import { createLinkedQuorum, DELAYED_MS, detachClaim, expectHeld } from "./faulty-links.ts";

test("a tie of claims with unanswered first calls ends like any other", async () => {
  const linkedQuorum = createLinkedQuorum();
  const clients = await Promise.all([0, 1, 2].map(() => linkedQuorum.openClient({ random: Math.random })));
  const claims = clients.map(() => makeClaim("key", { ttlMs: 30_000 }));
  // each claim reached a different member, and all answers were lost
  for (const [clientIndex, { driver, links }] of clients.entries()) {
    for (const [index, link] of links.entries()) link.fault = index === clientIndex ? "mute" : "away";
    await expect(linkedQuorum.settleWithin(10, driver.claim(claims[clientIndex] as never))).rejects.toThrow(
      /0 of 3 members answered/,
    );
    for (const link of links) link.fault = null;
  }
  const states = new Set<string>();
  for (const [index, { driver }] of clients.entries())
    await linkedQuorum.settleWithin(10, driver.claim(claims[index] as never));
  for (let round = 0; round < 200 && !states.has("held"); round++) {
    for (const [index, { driver }] of clients.entries()) {
      const [answer] = await linkedQuorum.settleWithin(50, driver.renew([claims[index] as never]));
      states.add((answer as Answer).state);
    }
  }
  expect([...states]).toContain("held");
});

test("a majority lost for a moment while its token was requested grants nothing with that token", async () => {
  const linkedQuorum = createLinkedQuorum();
  const [client, otherClient] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
  const [, two, three] = linksOf(client);
  const claim = makeClaim("key", { ttlMs: 10_000 });
  const otherClaim = makeClaim("key", { ttlMs: 30_000 });
  await storeAt(linkedQuorum, 2).direct().claim(otherClaim);
  for (const { delayMs } of client.links) delayMs.ticket = 5_000;
  await expect(linkedQuorum.settleWithin(1_200, client.driver.claim(claim))).rejects.toThrow(
    /has not agreed on its token/,
  );
  // the second's vote expires unnoticed
  two.fault = "away";
  await linkedQuorum.clock.advance(7_500);
  await expect(linkedQuorum.settleWithin(1_000, client.driver.renew([claim]))).rejects.toThrow(
    /has not agreed on its token/,
  );
  await linkedQuorum.clock.advance(1_000);
  const { token } = expectHeld(await linkedQuorum.settleWithin(100, otherClient.driver.claim(otherClaim)));
  for (const { delayMs } of client.links) delayMs.ticket = 0;
  expect(await linkedQuorum.settleWithin(100, otherClient.driver.release(toReleases(otherClaim)))).toEqual([true]);
  expect(three.receivedCalls).toContain("claim key#holdfast-token");
  for (const { answer } of client.pushes) {
    if (answer?.state === "held") expect(answer.token).toBeGreaterThan(token);
  }
  expect(await linkedQuorum.settleWithin(1_200, client.driver.renew([claim]))).toEqual([{ state: "none" }]);
});

test("a grant pushed late does not count for the entry made since, though the first entry was never confirmed", async () => {
  for (const repeatedVerb of ["renew", "claim"] as const) {
    const linkedQuorum = createLinkedQuorum();
    const client = await linkedQuorum.openClient();
    const [, two] = linksOf(client);
    const [before, otherClaim] = [makeClaim("key"), makeClaim("key")];
    await storeAt(linkedQuorum, 1).direct().claim(before);
    await storeAt(linkedQuorum, 2).direct().claim(otherClaim);
    two.fault = "mute";
    two.delayMs.push = 3_000;
    const claim = makeClaim("key", { ttlMs: 20_000 });
    expect(await linkedQuorum.settleWithin(10, client.driver.claim(claim))).toMatchObject({ state: "waiting" });
    await storeAt(linkedQuorum, 1).direct().release(toReleases(before));
    await linkedQuorum.clock.advance(10);
    // it comes back empty, and the other claim arrives first
    storeAt(linkedQuorum, 1).restartEmpty();
    two.fault = null;
    expect(await storeAt(linkedQuorum, 1).direct().claim(otherClaim)).toMatchObject({ state: "held" });
    two.delayMs.claim = repeatedVerb === "claim" ? 5_000 : 0;
    const pending: Promise<unknown> =
      repeatedVerb === "claim" ? client.driver.claim(claim) : client.driver.renew([claim]);
    await linkedQuorum.settleWithin(1_100, pending);
    await linkedQuorum.clock.advance(5_000);
    for (const { answer } of client.pushes) expect(answer?.state, repeatedVerb).not.toBe("held");
    expect(await linkedQuorum.settleWithin(1_100, client.driver.renew([claim])), repeatedVerb).toMatchObject([
      { state: "waiting" },
    ]);
  }
});

/** A tie of this client's claim at the first member, whose release fails there; the others hold the second and the third. */
async function createTie(faultKind: "away" | "late"): Promise<{
  readonly it: LinkedQuorum;
  readonly client: QuorumClient;
  readonly claim: Claim;
  readonly otherClaims: readonly Claim[];
}> {
  const linkedQuorum = createLinkedQuorum();
  const client = await linkedQuorum.openClient();
  const [one] = linksOf(client);
  const otherClaims = [makeClaim("key"), makeClaim("key")];
  for (const [index, other] of otherClaims.entries())
    await storeAt(linkedQuorum, index + 1)
      .direct()
      .claim(other);
  const claim = makeClaim("key", { ttlMs: 10_000 });
  expect(await linkedQuorum.settleWithin(10, client.driver.claim(claim))).toMatchObject({ state: "waiting" });
  await linkedQuorum.clock.advance(100);
  one.faultyVerb = "release";
  one.fault = faultKind;
  await linkedQuorum.settleWithin(1_200, client.driver.renew([claim]));
  expect(await storeAt(linkedQuorum, 0).direct().renew([claim])).toMatchObject([{ state: "held" }]);
  one.fault = null;
  return { it: linkedQuorum, client, claim, otherClaims };
}

test("a pushed grant counts, however often the claim has been renewed while it waited", async () => {
  const linkedQuorum = createLinkedQuorum();
  const client = await linkedQuorum.openClient();
  const before = makeClaim("key");
  for (const { direct } of linkedQuorum.stores) await direct().claim(before);
  const claim = makeClaim("key", { ttlMs: 10_000 });
  expect(await linkedQuorum.settleWithin(10, client.driver.claim(claim))).toMatchObject({ state: "waiting" });
  for (let renewals = 0; renewals < 3; renewals++) await linkedQuorum.settleWithin(3_000, client.driver.renew([claim]));
  for (const { direct } of linkedQuorum.stores) await direct().release(toReleases(before));
  await linkedQuorum.clock.advance(10);
  expect(client.pushes).toMatchObject([{ id: claim.id, answer: { state: "held" } }]);
});

test("a tie's vote whose release failed is released when the member answers, and requested again", async () => {
  const { it, client, claim, otherClaims } = await createTie("away");
  const [one, two] = linksOf(client);
  for (let renewals = 0; renewals < 24; renewals++) await it.settleWithin(500, client.driver.renew([claim]));
  expect(one.receivedCalls.slice(0, 4)).toEqual(["claim key", "renew key", "release key", "claim key"]);
  // one of the others may be missing from now on
  two.fault = "away";
  await storeAt(it, 2)
    .direct()
    .release(toReleases(otherClaims[1] as Claim));
  await it.settleWithin(1_200, client.driver.renew([claim]));
  expect(await it.settleWithin(1_200, client.driver.renew([claim]))).toMatchObject([{ state: "held" }]);
});

test("a vote that a late call releases is not counted when it is requested again", async () => {
  const { it, client, claim, otherClaims } = await createTie("late");
  await it.settleWithin(500, client.driver.renew([claim]));
  await it.settleWithin(500, client.driver.renew([claim]));
  const otherClaim = makeClaim("key");
  await storeAt(it, 0).direct().claim(otherClaim);
  await it.clock.advance(DELAYED_MS);
  await storeAt(it, 2)
    .direct()
    .release(toReleases(otherClaims[1] as Claim));
  await it.clock.advance(100);
  for (const { answer } of client.pushes) expect(answer?.state).not.toBe("held");
  expect(await storeAt(it, 0).direct().renew([otherClaim])).toMatchObject([{ state: "held" }]);
});

test("a member that refuses permanently counts as missing: claims wait on while another one fails now and then", async () => {
  const linkedQuorum = createLinkedQuorum();
  const refusal = new StoreRefusedError("no such user");
  const client = await linkedQuorum.openClient({}, (allLinks) => {
    (allLinks[2] as FaultyLink).fault = refusal;
  });
  const [one, two] = linksOf(client);
  const claim = makeClaim("key", { ttlMs: 10_000 });
  two.fault = "away";
  await expect(linkedQuorum.settleWithin(1_200, client.driver.claim(claim))).rejects.toMatchObject({
    message: expect.stringMatching(/of 3 members answered, 2 must/),
    cause: refusal,
  });
  two.fault = null;
  expect(await linkedQuorum.settleWithin(1_200, client.driver.claim(claim))).toMatchObject({ state: "held" });
  // a permanent failure is reported at once
  one.fault = refusal;
  await expect(linkedQuorum.settleWithin(1_200, client.driver.claim(makeClaim("other")))).rejects.toBe(refusal);
});

test("an entry that a member has lost is made again while another member was never reached", async () => {
  const linkedQuorum = createLinkedQuorum();
  const client = await linkedQuorum.openClient({}, (allLinks) => {
    (allLinks[2] as FaultyLink).fault = "away";
  });
  const before = makeClaim("key");
  for (const index of [0, 1]) await storeAt(linkedQuorum, index).direct().claim(before);
  const claim = makeClaim("key", { ttlMs: 10_000 });
  expect(await linkedQuorum.settleWithin(10, client.driver.claim(claim))).toMatchObject({ state: "waiting" });
  storeAt(linkedQuorum, 1).restartEmpty();
  await linkedQuorum.settleWithin(
    1_200,
    client.driver.renew([claim]).catch(() => undefined),
  );
  await storeAt(linkedQuorum, 0).direct().release(toReleases(before));
  await linkedQuorum.clock.advance(100);
  expect(await linkedQuorum.settleWithin(1_200, client.driver.renew([claim]))).toMatchObject([{ state: "held" }]);
});

test("a detached lock is attached with its token though one member has none and another is slow", async () => {
  const linkedQuorum = createLinkedQuorum();
  const [client, other] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
  const third = client.links[2] as FaultyLink;
  third.fault = "away";
  const claim = makeClaim("key", { ttlMs: 20_000 });
  const { token } = expectHeld(await linkedQuorum.settleWithin(10, client.driver.claim(claim)));
  third.fault = null;
  await linkedQuorum.settleWithin(10, client.driver.renew([claim]));
  expect(await linkedQuorum.settleWithin(10, detachClaim(client, claim))).toEqual([true]);
  await storeAt(linkedQuorum, 2)
    .direct()
    .release(toReleases(createTokenClaim(claim, 0n)));
  const second = other.links[1] as FaultyLink;
  second.delayMs.ticket = 5_000;
  expect(await linkedQuorum.settleWithin(1_200, other.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
});

test("a detached lock that returns to its client is examined as if it were new", async () => {
  const linkedQuorum = createLinkedQuorum();
  const [client, other] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
  const claim = makeClaim("key", { ttlMs: 10_000 });
  const { token } = expectHeld(await linkedQuorum.settleWithin(10, client.driver.claim(claim)));
  expect(await linkedQuorum.settleWithin(10, detachClaim(client, claim))).toEqual([true]);
  for (let minutes = 0; minutes < 3; minutes++) {
    await linkedQuorum.clock.advance(6_000);
    expect(await linkedQuorum.settleWithin(10, other.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
  }
  expect(await linkedQuorum.settleWithin(10, detachClaim(other, claim))).toEqual([true]);
  expect(await linkedQuorum.settleWithin(10, client.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
});

test("a reference to a released lock makes no entry on any member", async () => {
  const linkedQuorum = createLinkedQuorum();
  const [client, other] = [await linkedQuorum.openClient(), await linkedQuorum.openClient()];
  const claim = makeClaim("key", { ttlMs: 20_000 });
  await linkedQuorum.settleWithin(10, client.driver.claim(claim));
  (client.links[2] as FaultyLink).fault = "away";
  expect(await linkedQuorum.settleWithin(10, client.driver.release(toReleases(claim)))).toEqual([true]);
  (other.links[1] as FaultyLink).fault = "away";
  await linkedQuorum.settleWithin(
    1_200,
    other.driver.renew([claim]).catch(() => undefined),
  );
  expect((await storeAt(linkedQuorum, 0).direct().list({ prefix: "" }, { max: 10 })).items).toEqual([]);
});

test("unanswered calls are limited to some thousands only for a member in trouble", async () => {
  const clock = new FakeClock();
  const member = new Member({
    index: 0,
    driver: memory(),
    clock,
    time: () => clock.now(),
    onPush: ignoreErrors,
    onRecalled: ignoreErrors,
    onDisconnected: ignoreErrors,
    onHealthChange: ignoreErrors,
    heldTokens: () => null,
  });
  await member.open();
  const calls = Array.from({ length: 6_000 }, () => member.call(() => new Promise(() => undefined)));
  const reply = member.call(() => Promise.resolve("answered"));
  expect(await Promise.race([...calls, reply])).toBe("answered");
  member.markSuspect(new Error("silent"));
  await expect(member.call(() => Promise.resolve("answered"))).rejects.toThrow(/has too many unanswered calls/);
});

test("when a member has too many pending releases the oldest are left to the end of their lease", async () => {
  const clock = new FakeClock();
  const releasedClaims: Claim[] = [];
  const driver = delegate(memory(), {
    async release(releases) {
      releasedClaims.push(...releases.map(({ claim }) => claim));
      return releases.map(() => true);
    },
  });
  const member = new Member({
    index: 0,
    driver,
    clock,
    time: () => clock.now(),
    onPush: ignoreErrors,
    onRecalled: ignoreErrors,
    onDisconnected: ignoreErrors,
    onHealthChange: ignoreErrors,
    heldTokens: () => null,
  });
  await member.open();
  const claims = Array.from({ length: 10_002 }, () => makeClaim("key"));
  for (const claim of claims) member.addPendingRelease(claim, 60_000);
  member.flushReleases();
  await clock.advance(10);
  expect(releasedClaims).toEqual(claims.slice(2));
});

test("answers that arrive after more than a thousand other claims find their claim", async () => {
  const linkedQuorum = createLinkedQuorum();
  const client = await linkedQuorum.openClient();
  await linkedQuorum.clock.advance(100_000);
  const claim = makeClaim("key", { ttlMs: 60_000 });
  for (const { delayMs } of client.links) delayMs.claim = 3_000;
  await expect(linkedQuorum.settleWithin(1_200, client.driver.claim(claim))).rejects.toThrow(/0 of 3 members answered/);
  for (const { delayMs } of client.links) delayMs.claim = 0;
  for (let count = 0; count < 1_100; count++) {
    const otherClaim = makeClaim("other", { wait: false });
    await client.driver.claim(otherClaim);
    await client.driver.release(toReleases(otherClaim));
  }
  await linkedQuorum.settleWithin(100, client.driver.release(toReleases(claim)));
  await linkedQuorum.clock.advance(3_000);
  expect(client.pushes).toEqual([]);
  for (const { direct } of linkedQuorum.stores)
    expect((await direct().list({ prefix: "" }, { max: 10 })).items).toEqual([]);
});

test("each member learns of the end of every claim and token claim, also of those that it lost", async () => {
  const clock = new FakeClock();
  const stores = [0, 1, 2].map((index) =>
    chaos(memory({ store: memoryStore(clock) }), { seed: index, loseReply: 0.1 }),
  );
  const ledgers = stores.map(createClaimLedger);
  const locks = createLocks(
    quorum(
      ledgers.map(({ driver }) => driver),
      { clock },
    ),
    { clock, ttl: "9s", wait: "3s" },
  );
  const work = Array.from({ length: 1_000 }, (_, index) =>
    locks.using(`k${index % 400}`, () => undefined).catch(() => undefined),
  );
  await clock.advance(60_000);
  await Promise.all(work);
  for (const { openClaims } of ledgers) expect(openClaims.size).toBe(0);
});

const ignoreErrors = (): void => undefined;
const linksOf = ({ links: allLinks }: QuorumClient): readonly [FaultyLink, FaultyLink, FaultyLink] => allLinks as never;
const storeAt = (linkedQuorum: LinkedQuorum, index: number): MemberStore => linkedQuorum.stores[index] as MemberStore;
