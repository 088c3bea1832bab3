import { describe, expect, test } from "vitest";
import { memory } from "../../../src/drivers/memory.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import type { Driver, Traits } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS, withTraits } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { TestMember } from "./quorum-fixture.ts";
import { createQuorumFixture, settleWithin } from "./quorum-fixture.ts";

describe("votes of the members", () => {
  test("a lease is counted from when the votes were requested, however late they are answered", async () => {
    const fixture = await createQuorumFixture();
    const claim = makeClaim("key", { ttlMs: 1_000 });
    for (const member of fixture.members) member.claimDelayMs = 600;
    await expect(settleWithin(fixture, 200, fixture.driver.claim(claim))).rejects.toThrow(/0 of 3 members answered/);
    await fixture.clock.advance(450);
    const push = fixture.pushes.find(({ id }) => id === claim.id)?.answer;
    expect(push).toMatchObject({ state: "held" });
    expect((push as { remainingMs: number }).remainingMs).toBeLessThanOrEqual(300);
  });

  test("a grant pushed before the answer that confirms its entry counts when that answer arrives", async () => {
    const fixture = await createQuorumFixture();
    const before = makeClaim("key", { ttlMs: 1_000 });
    for (const { driver } of fixture.members) expect(await driver.claim(before)).toMatchObject({ state: "held" });
    for (const member of fixture.members) member.claimDelayMs = 50;
    const claim = makeClaim("key", { ttlMs: 1_000 });
    const pendingClaim = fixture.driver.claim(claim);
    await fixture.clock.advance(10);
    for (const { driver } of fixture.members) await driver.release(toReleases(before));
    expect(fixture.pushes).toEqual([]);
    expect(await settleWithin(fixture, 100, pendingClaim)).toMatchObject({ state: "held" });
    expect(await settleWithin(fixture, 10, fixture.driver.release(toReleases(claim)))).toEqual([true]);
  });

  test("a vote left out of a member's answer is not lost", async () => {
    const fixture = await createQuorumFixture();
    const claim = makeClaim("key", { ttlMs: 1_000 });
    expect(await settleWithin(fixture, 10, fixture.driver.claim(claim))).toMatchObject({ state: "held" });
    const [, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    two.omitsAnswers = true;
    three.omitsAnswers = true;
    await fixture.clock.advance(300);
    await expect(settleWithin(fixture, 10, fixture.driver.renew([claim]))).rejects.toThrow(/1 of 3 members answered/);
    await fixture.clock.advance(300);
    three.omitsAnswers = false;
    expect(await settleWithin(fixture, 10, fixture.driver.renew([claim]))).toMatchObject([{ state: "held" }]);
    expect(await settleWithin(fixture, 10, fixture.driver.release(toReleases(claim)))).toEqual([true]);
  });

  test("a vote from before a break of its member's connection confirms nothing, until the member answers again", async () => {
    const fixture = await createQuorumFixture();
    const claim = makeClaim("key", { ttlMs: 1_000 });
    const [, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    const renew = () => settleWithin(fixture, 10, fixture.driver.renew([claim]));
    expect(await settleWithin(fixture, 10, fixture.driver.claim(claim))).toMatchObject({ state: "held" });
    two.breakConnection();
    expect(fixture.breakCount(), "one member is a break").toBe(1);
    two.isAway = true;
    expect(await renew(), "the others are a majority").toMatchObject([{ state: "held" }]);
    await three.driver.release(toReleases(claim));
    await expect(renew(), "one vote, one loss, and one that may be gone").rejects.toThrow(
      /since their connections broke/,
    );
    two.isAway = false;
    expect(await renew()).toMatchObject([{ state: "held" }]);
    expect(await settleWithin(fixture, 10, fixture.driver.release(toReleases(claim)))).toEqual([true]);
  });

  test("a lease is that of the majority: a vote that was not renewed does not extend it", async () => {
    const fixture = await createQuorumFixture();
    const claim = makeClaim("key", { ttlMs: 1_000 });
    expect(await settleWithin(fixture, 10, fixture.driver.claim(claim))).toMatchObject({ state: "held" });
    const [, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    await fixture.clock.advance(500);
    two.isAway = true;
    three.isAway = true;
    await expect(settleWithin(fixture, 200, fixture.driver.renew([claim]))).rejects.toThrow(/1 of 3 members answered/);
    three.isAway = false;
    await three.driver.release(toReleases(claim));
    await three.driver.claim(makeClaim("key"));
    await fixture.clock.advance(80);
    // one vote is renewed, one has its first answer only, one is gone
    const [answer] = await settleWithin(fixture, 0, fixture.driver.renew([claim]));
    expect(answer).toMatchObject({ state: "held" });
    expect((answer as { remainingMs: number }).remainingMs).toBeLessThan(140);
    await fixture.clock.advance(130);
    expect(await settleWithin(fixture, 10, fixture.driver.renew([claim]))).toEqual([{ state: "none" }]);
  });

  test("the highest token is written back: a majority that shares one member with the previous one goes above it", async () => {
    const fixture = await createQuorumFixture();
    const [one, two, wrongCredential] = fixture.members as [TestMember, TestMember, TestMember];
    const tokenOf = async (): Promise<bigint> => {
      const claim = makeClaim("key");
      const answer = await settleWithin(fixture, 600, fixture.driver.claim(claim));
      await settleWithin(fixture, 600, fixture.driver.release(toReleases(claim)));
      expect(answer.state).toBe("held");
      return (answer as { token: bigint }).token;
    };
    wrongCredential.isAway = true;
    const first = await tokenOf();
    wrongCredential.isAway = false;
    one.isAway = true;
    const second = await tokenOf();
    one.isAway = false;
    two.isAway = true;
    expect(second).toBeGreaterThan(first);
    expect(await tokenOf()).toBeGreaterThan(second);
  });

  test("three readers' votes are never enough for a writer, and a semaphore is refused before anything is sent", async () => {
    const fixture = await createQuorumFixture();
    const readClaim = makeClaim([{ key: "key", permits: 1, limit: 2 ** 30 }]);
    const write = makeClaim("key", { wait: false });
    expect(await settleWithin(fixture, 10, fixture.driver.claim(readClaim))).toMatchObject({ state: "held" });
    expect(await settleWithin(fixture, 10, fixture.driver.claim(write))).toEqual({ state: "none" });
  });

  test("a claim survives two missing members of five, not three, and unknown is not busy", async () => {
    const fixture = await createQuorumFixture(5);
    for (const member of fixture.members.slice(3)) member.isAway = true;
    const claim = makeClaim("key", { wait: false });
    expect(await settleWithin(fixture, 600, fixture.driver.claim(claim))).toMatchObject({ state: "held" });
    expect(await settleWithin(fixture, 600, fixture.driver.claim(makeClaim("key", { wait: false })))).toEqual({
      state: "none",
    });
    (fixture.members[2] as TestMember).isAway = true;
    await expect(settleWithin(fixture, 600, fixture.driver.claim(makeClaim("free", { wait: false })))).rejects.toThrow(
      /2 of 5 members answered, 3 must/,
    );
  });

  test("a grant whose votes fall below a majority is lost, and the remaining votes are released", async () => {
    const fixture = await createQuorumFixture();
    const [one, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    const claim = makeClaim("key");
    await settleWithin(fixture, 10, fixture.driver.claim(claim));
    for (const { driver } of [one, two]) await driver.release(toReleases(claim));
    expect(await settleWithin(fixture, 600, fixture.driver.renew([claim]))).toEqual([{ state: "none" }]);
    expect((await three.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
  });

  test("a vote of a tie is released after a while, and requested again only after that was answered", async () => {
    const fixture = await createQuorumFixture();
    const [one, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    const [first, second, ownClaim] = [makeClaim("key"), makeClaim("key"), makeClaim("key", { ttlMs: 10_000 })];
    await two.driver.claim(first);
    await three.driver.claim(second);
    const answer = await settleWithin(fixture, 10, fixture.driver.claim(ownClaim));
    expect(answer).toMatchObject({ state: "waiting" });
    expect((answer as { recheckMs: number }).recheckMs).toBeLessThan(100);
    one.releaseDelayMs = 3_000;
    await fixture.clock.advance(100);
    expect(one.releasedKeys).toEqual([]);
    await settleWithin(fixture, 1_500, fixture.driver.renew([ownClaim]));
    expect(one.releasedKeys).toEqual(["key"]);
    await settleWithin(fixture, 1_100, fixture.driver.renew([ownClaim]));
    expect(one.claimedKeys).toEqual(["key"]);
    await fixture.clock.advance(1_000);
    await settleWithin(fixture, 10, fixture.driver.renew([ownClaim]));
    expect(one.claimedKeys).toEqual(["key", "key"]);
    await two.driver.release(toReleases(first));
    await fixture.clock.advance(10);
    expect(await settleWithin(fixture, 10, fixture.driver.renew([ownClaim]))).toMatchObject([{ state: "held" }]);
  });

  test("a claim that requested a token and then lost its majority starts again: its old ticket may be too low", async () => {
    const fixture = await createQuorumFixture();
    const [one, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    const [other, ownClaim] = [makeClaim("key"), makeClaim("key", { ttlMs: 10_000 })];
    await three.driver.claim(other);
    for (const member of fixture.members) member.tokenClaimDelayMs = 5_000;
    await expect(settleWithin(fixture, 1_500, fixture.driver.claim(ownClaim))).rejects.toThrow(
      /has not agreed on its token/,
    );
    await two.driver.release(toReleases(ownClaim));
    // a vote and a waiting entry make a majority of entries, but not of votes
    expect(await settleWithin(fixture, 10, fixture.driver.renew([ownClaim]))).toEqual([{ state: "none" }]);
    expect(
      (await one.driver.list({ prefix: "key" }, { max: 10 })).items.filter(({ locks }) => locks[0].key === "key"),
    ).toEqual([]);
  });

  test("a release that a member missed is repeated as soon as the member answers", async () => {
    const fixture = await createQuorumFixture();
    const three = fixture.members[2] as TestMember;
    const claim = makeClaim("key");
    await settleWithin(fixture, 10, fixture.driver.claim(claim));
    three.isAway = true;
    expect(await settleWithin(fixture, 10, fixture.driver.release(toReleases(claim)))).toEqual([true]);
    three.isAway = false;
    expect((await three.driver.list({ prefix: "" }, { max: 10 })).items).not.toEqual([]);
    const next = makeClaim("another");
    await settleWithin(fixture, 10, fixture.driver.claim(next));
    await settleWithin(fixture, 10, fixture.driver.release(toReleases(next)));
    expect((await three.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
  });

  test("the entries of a minority are released too", async () => {
    const fixture = await createQuorumFixture();
    const claim = makeClaim("key");
    await settleWithin(fixture, 10, fixture.driver.claim(claim));
    expect(await settleWithin(fixture, 10, fixture.driver.release(toReleases(claim)))).toEqual([true]);
    for (const { driver } of fixture.members)
      expect((await driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
  });

  test("the keys of tickets are refused, and are in no list", async () => {
    const fixture = await createQuorumFixture();
    const claim = makeClaim("key");
    await settleWithin(fixture, 10, fixture.driver.claim(claim));
    expect(
      (await settleWithin(fixture, 10, fixture.driver.list({ prefix: "" }, { max: 10 }))).items.map(
        ({ locks }) => locks[0].key,
      ),
    ).toEqual(["key"]);
    await expect(fixture.driver.claim(makeClaim("key#holdfast-token"))).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
    });
  });

  test("wrong arguments are TypeErrors that name them", () => {
    const [one, two] = [memory(), memory()];
    expect(() => quorum([one, two])).toThrow(/drivers must be an odd number/);
    expect(() => quorum([one, two, one])).toThrow(/drivers must be distinct/);
    expect(() => quorum([one, 5, two] as never)).toThrow(/^drivers\[1\] must be a driver, not 5/);
    const three = [one, two, memory()];
    expect(() => quorum(three, { callTimeoutMs: 0 })).toThrow(/^callTimeoutMs must be a whole number of milliseconds/);
    expect(() => quorum(three, { onMember: "told" } as never)).toThrow(/^onMember must be a function/);
    expect(() => quorum(three, { timeoutMs: 5 } as never)).toThrow(/^quorum has no option "timeoutMs"/);
    expect(() => quorum(three, null as never)).toThrow(/^options of quorum must be an object/);
  });

  test("a store without tokens or leases cannot be a member", async () => {
    const member = (traits: Partial<Traits>): Driver => {
      const memoryDriver = memory();
      return delegate(memoryDriver, withTraits(memoryDriver, traits));
    };
    const driver = quorum([member({}), member({}), member({ fencing: false })]);
    await expect(driver.open(NO_EVENTS)).rejects.toThrow(/drivers\[2\] \(memory\) cannot be a quorum member/);
  });
});
