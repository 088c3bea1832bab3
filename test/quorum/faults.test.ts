/** What breaks at the links of a majority, one fault at a time: each is forced, none is waited for. */

import { expect, test } from "vitest";
import { delegate } from "../../src/conformance/delegate.ts";
import { memory } from "../../src/drivers/memory.ts";
import { Ballots } from "../../src/drivers/quorum/ballots.ts";
import { Member } from "../../src/drivers/quorum/connection.ts";
import { ticketOf } from "../../src/drivers/quorum/tickets.ts";
import { FatalDriverError } from "../../src/errors.ts";
import type { Answer, Claim } from "../../src/spi/driver.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { claimOf } from "../support/redis-scene.ts";
import type { Joined, Link, Majority, Store } from "./links.ts";
import { held, LATE_MS, majority } from "./links.ts";

test("a tie of claims whose first calls were never answered ends like any other", async () => {
  const it = majority();
  const clients = await Promise.all([0, 1, 2].map(() => it.join({ random: Math.random })));
  const claims = clients.map(() => claimOf("key", { ttlMs: 30_000 }));
  // each reached a member of its own, and all answers were lost
  for (const [at, { driver, links }] of clients.entries()) {
    for (const [index, link] of links.entries()) link.trouble = index === at ? "mute" : "away";
    await expect(it.within(10, driver.claim(claims[at] as never))).rejects.toThrow(/0 of 3 members answered/);
    for (const link of links) link.trouble = null;
  }
  const states = new Set<string>();
  for (const [at, { driver }] of clients.entries()) await it.within(10, driver.claim(claims[at] as never));
  for (let round = 0; round < 200 && !states.has("held"); round++) {
    for (const [at, { driver }] of clients.entries()) {
      const [answer] = await it.within(50, driver.renew([claims[at] as never]));
      states.add((answer as Answer).state);
    }
  }
  expect([...states]).toContain("held");
});

test("a majority that was lost for a moment while its token was asked for grants nothing by that token", async () => {
  const it = majority();
  const [ours, rival] = [await it.join(), await it.join()];
  const [, two, three] = links(ours);
  const claim = claimOf("key", { ttlMs: 10_000 });
  const theirs = claimOf("key", { ttlMs: 30_000 });
  await store(it, 2).direct().claim(theirs);
  for (const { lateMs } of ours.links) lateMs.ticket = 5_000;
  await expect(it.within(1_200, ours.driver.claim(claim))).rejects.toThrow(/has not agreed on its token/);
  // the second's vote runs out, and nobody looks meanwhile
  two.trouble = "away";
  await it.clock.pass(7_500);
  await expect(it.within(1_000, ours.driver.renew([claim]))).rejects.toThrow(/has not agreed on its token/);
  await it.clock.pass(1_000);
  const { token } = held(await it.within(100, rival.driver.claim(theirs)));
  for (const { lateMs } of ours.links) lateMs.ticket = 0;
  expect(await it.within(100, rival.driver.release([theirs]))).toEqual([true]);
  expect(three.arrived).toContain("claim key#holdfast-token");
  for (const { answer } of ours.pushes) {
    if (answer?.state === "held") expect(answer.token).toBeGreaterThan(token);
  }
  expect(await it.within(1_200, ours.driver.renew([claim]))).toEqual([{ state: "none" }]);
});

test("a grant that is pushed late is none of the place made since, though the first place was never heard of", async () => {
  for (const again of ["renew", "claim"] as const) {
    const it = majority();
    const ours = await it.join();
    const [, two] = links(ours);
    const [before, rival] = [claimOf("key"), claimOf("key")];
    await store(it, 1).direct().claim(before);
    await store(it, 2).direct().claim(rival);
    two.trouble = "mute";
    two.lateMs.push = 3_000;
    const claim = claimOf("key", { ttlMs: 20_000 });
    expect(await it.within(10, ours.driver.claim(claim))).toMatchObject({ state: "waiting" });
    await store(it, 1).direct().release([before]);
    await it.clock.pass(10);
    // it comes back empty, and the other one is there first
    store(it, 1).restartEmpty();
    two.trouble = null;
    expect(await store(it, 1).direct().claim(rival)).toMatchObject({ state: "held" });
    two.lateMs.claim = again === "claim" ? 5_000 : 0;
    const asked: Promise<unknown> = again === "claim" ? ours.driver.claim(claim) : ours.driver.renew([claim]);
    await it.within(1_100, asked);
    await it.clock.pass(5_000);
    for (const { answer } of ours.pushes) expect(answer?.state, again).not.toBe("held");
    expect(await it.within(1_100, ours.driver.renew([claim])), again).toMatchObject([{ state: "waiting" }]);
  }
});

/** A tie of ours at the first member, whose release meets trouble there; the others hold the second and the third. */
async function tied(trouble: "away" | "late"): Promise<{
  readonly it: Majority;
  readonly ours: Joined;
  readonly claim: Claim;
  readonly others: readonly Claim[];
}> {
  const it = majority();
  const ours = await it.join();
  const [one] = links(ours);
  const others = [claimOf("key"), claimOf("key")];
  for (const [at, other] of others.entries())
    await store(it, at + 1)
      .direct()
      .claim(other);
  const claim = claimOf("key", { ttlMs: 10_000 });
  expect(await it.within(10, ours.driver.claim(claim))).toMatchObject({ state: "waiting" });
  await it.clock.pass(100);
  one.verb = "release";
  one.trouble = trouble;
  await it.within(1_200, ours.driver.renew([claim]));
  expect(await store(it, 0).direct().renew([claim])).toMatchObject([{ state: "held" }]);
  one.trouble = null;
  return { it, ours, claim, others };
}

test("a grant that is pushed is taken at its word, however often the claim has been renewed while it waited", async () => {
  const it = majority();
  const ours = await it.join();
  const before = claimOf("key");
  for (const { direct } of it.stores) await direct().claim(before);
  const claim = claimOf("key", { ttlMs: 10_000 });
  expect(await it.within(10, ours.driver.claim(claim))).toMatchObject({ state: "waiting" });
  for (let renewals = 0; renewals < 3; renewals++) await it.within(3_000, ours.driver.renew([claim]));
  for (const { direct } of it.stores) await direct().release([before]);
  await it.clock.pass(10);
  expect(ours.pushes).toMatchObject([{ id: claim.id, answer: { state: "held" } }]);
});

test("a vote of a tie that could not be given back is given back when the member answers, and asked for again", async () => {
  const { it, ours, claim, others } = await tied("away");
  const [one, two] = links(ours);
  for (let renewals = 0; renewals < 24; renewals++) await it.within(500, ours.driver.renew([claim]));
  expect(one.arrived.slice(0, 4)).toEqual(["claim key", "renew key", "release key", "claim key"]);
  // one of the others may be away from now on
  two.trouble = "away";
  await store(it, 2)
    .direct()
    .release([others[1] as Claim]);
  await it.within(1_200, ours.driver.renew([claim]));
  expect(await it.within(1_200, ours.driver.renew([claim]))).toMatchObject([{ state: "held" }]);
});

test("a vote that is given back by a call that comes late is not taken for ours when we ask for it again", async () => {
  const { it, ours, claim, others } = await tied("late");
  await it.within(500, ours.driver.renew([claim]));
  await it.within(500, ours.driver.renew([claim]));
  const rival = claimOf("key");
  await store(it, 0).direct().claim(rival);
  await it.clock.pass(LATE_MS);
  await store(it, 2)
    .direct()
    .release([others[1] as Claim]);
  await it.clock.pass(100);
  for (const { answer } of ours.pushes) expect(answer?.state).not.toBe("held");
  expect(await store(it, 0).direct().renew([rival])).toMatchObject([{ state: "held" }]);
});

test("a member that refuses for good is a member that is away: while another one stutters claims wait on", async () => {
  const it = majority();
  const refusal = new FatalDriverError("no such user");
  const ours = await it.join({}, (all) => {
    (all[2] as Link).trouble = refusal;
  });
  const [one, two] = links(ours);
  const claim = claimOf("key", { ttlMs: 10_000 });
  two.trouble = "away";
  await expect(it.within(1_200, ours.driver.claim(claim))).rejects.toMatchObject({
    message: expect.stringMatching(/of 3 members answered, 2 must/),
    cause: refusal,
  });
  two.trouble = null;
  expect(await it.within(1_200, ours.driver.claim(claim))).toMatchObject({ state: "held" });
  // what no asking again can mend is said at once
  one.trouble = refusal;
  await expect(it.within(1_200, ours.driver.claim(claimOf("other")))).rejects.toBe(refusal);
});

test("a place that a member has lost is made again while another member was never reached", async () => {
  const it = majority();
  const ours = await it.join({}, (all) => {
    (all[2] as Link).trouble = "away";
  });
  const before = claimOf("key");
  for (const at of [0, 1]) await store(it, at).direct().claim(before);
  const claim = claimOf("key", { ttlMs: 10_000 });
  expect(await it.within(10, ours.driver.claim(claim))).toMatchObject({ state: "waiting" });
  store(it, 1).restartEmpty();
  await it.within(
    1_200,
    ours.driver.renew([claim]).catch(() => undefined),
  );
  await store(it, 0).direct().release([before]);
  await it.clock.pass(100);
  expect(await it.within(1_200, ours.driver.renew([claim]))).toMatchObject([{ state: "held" }]);
});

test("a detached lock is taken up again with its token though a member knows none and another one is slow", async () => {
  const it = majority();
  const [ours, other] = [await it.join(), await it.join()];
  const third = ours.links[2] as Link;
  third.trouble = "away";
  const claim = claimOf("key", { ttlMs: 20_000 });
  const { token } = held(await it.within(10, ours.driver.claim(claim)));
  third.trouble = null;
  await it.within(10, ours.driver.renew([claim]));
  expect(await it.within(10, detached(ours, claim))).toEqual([true]);
  await store(it, 2)
    .direct()
    .release([ticketOf(claim, 0n)]);
  const second = other.links[1] as Link;
  second.lateMs.ticket = 5_000;
  expect(await it.within(1_200, other.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
});

test("a lock that was detached, and comes back, is looked at as if it had never been here", async () => {
  const it = majority();
  const [ours, other] = [await it.join(), await it.join()];
  const claim = claimOf("key", { ttlMs: 10_000 });
  const { token } = held(await it.within(10, ours.driver.claim(claim)));
  expect(await it.within(10, detached(ours, claim))).toEqual([true]);
  for (let minutes = 0; minutes < 3; minutes++) {
    await it.clock.pass(6_000);
    expect(await it.within(10, other.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
  }
  expect(await it.within(10, detached(other, claim))).toEqual([true]);
  expect(await it.within(10, ours.driver.renew([claim]))).toMatchObject([{ state: "held", token }]);
});

test("a reference of a lock that was released makes no place anywhere", async () => {
  const it = majority();
  const [ours, other] = [await it.join(), await it.join()];
  const claim = claimOf("key", { ttlMs: 20_000 });
  await it.within(10, ours.driver.claim(claim));
  (ours.links[2] as Link).trouble = "away";
  expect(await it.within(10, ours.driver.release([claim]))).toEqual([true]);
  (other.links[1] as Link).trouble = "away";
  await it.within(
    1_200,
    other.driver.renew([claim]).catch(() => undefined),
  );
  expect(await store(it, 0).direct().list({ prefix: "" }, 10)).toEqual([]);
});

test("only a member in trouble may owe no more than some thousands of answers", async () => {
  const clock = fakeClock();
  const member = new Member({
    index: 0,
    driver: memory(),
    clock,
    time: () => clock.now(),
    heard: ignore,
    told: ignore,
  });
  await member.open();
  const calls = Array.from({ length: 6_000 }, () => member.call(() => new Promise(() => undefined)));
  const soon = member.call(() => Promise.resolve("answered"));
  expect(await Promise.race([...calls, soon])).toBe("answered");
  member.fails(new Error("silent"));
  await expect(member.call(() => Promise.resolve("answered"))).rejects.toThrow(/owes too many answers/);
});

test("of more releases than are kept for a member the oldest are left to the end of their lease", async () => {
  const clock = fakeClock();
  const released: Claim[] = [];
  const driver = delegate(memory(), {
    async release(claims) {
      released.push(...claims);
      return claims.map(() => true);
    },
  });
  const member = new Member({ index: 0, driver, clock, time: () => clock.now(), heard: ignore, told: ignore });
  await member.open();
  const claims = Array.from({ length: 10_002 }, () => claimOf("key"));
  for (const claim of claims) member.keep(claim, 60_000);
  member.flush();
  await clock.pass(10);
  expect(released).toEqual(claims.slice(2));
});

test("answers that come when more than a thousand other claims were made meanwhile find their claim", async () => {
  const it = majority();
  const ours = await it.join();
  await it.clock.pass(100_000);
  const claim = claimOf("key", { ttlMs: 60_000 });
  for (const { lateMs } of ours.links) lateMs.claim = 3_000;
  await expect(it.within(1_200, ours.driver.claim(claim))).rejects.toThrow(/0 of 3 members answered/);
  for (const { lateMs } of ours.links) lateMs.claim = 0;
  for (let made = 0; made < 1_100; made++) {
    const other = claimOf("other", { wait: false });
    await ours.driver.claim(other);
    await ours.driver.release([other]);
  }
  await it.within(100, ours.driver.release([claim]));
  await it.clock.pass(3_000);
  expect(ours.pushes).toEqual([]);
  for (const { direct } of it.stores) expect(await direct().list({ prefix: "" }, 10)).toEqual([]);
});

test("claims that the core asks no more about are forgotten, and so is what was kept of them", async () => {
  const ballots = new Ballots(3);
  const now = 1_000_000;
  const first = ballots.of(claimOf("key", { ttlMs: 1_000 }), now);
  for (let made = 0; made < 3_000; made++) ballots.of(claimOf("key", { ttlMs: 1_000 }), now + made);
  expect(first.over).toBe(true);
  expect(ballots.get(first.claim.id)).toBe(undefined);
});

const ignore = (): void => undefined;
const links = ({ links: all }: Joined): readonly [Link, Link, Link] => all as never;
const store = (it: Majority, index: number): Store => it.stores[index] as Store;
const detached = async ({ driver }: Joined, claim: Claim): Promise<readonly boolean[]> =>
  (await driver.detach?.([claim])) ?? [];
