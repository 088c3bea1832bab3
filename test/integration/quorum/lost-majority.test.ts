/** Interleavings of one claim's votes with its release, and with other grants: each is forced, none is left to chance. */

import { expect, test } from "vitest";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS, toDriverEvents, toOnPush } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { toReleases } from "../../support/releases.ts";

/** One store, with a driver for the client under test whose replies a test delays, and one for the others. */
interface TestMember {
  store: MemoryStore;
  readonly driver: Driver;
  /** Replies to these verbs are delayed by this time. */
  readonly delayMs: { ticket: number; renew: number; release: number; push: number };
  rejectsClaims: boolean;
  restartEmpty(): void;
}

function createMember(clock: FakeClock): TestMember {
  const delayMs = { ticket: 0, renew: 0, release: 0, push: 0 };
  let inner: Driver;
  async function delayAnswer<T>(ms: number, answer: Promise<T>): Promise<T> {
    const result = await answer;
    if (ms > 0) await new Promise<void>((resolve) => clock.timer(resolve).set(clock.now() + ms));
    return result;
  }
  const isTokenClaim = ({ locks }: Claim): boolean => locks[0].key.includes("#");
  const member: TestMember = {
    store: memoryStore(clock),
    delayMs,
    rejectsClaims: false,
    driver: delegate(memory(), {
      open: (events) => {
        const notify = toOnPush(events);
        inner = memory({ store: member.store });
        return inner.open(
          toDriverEvents((id, answer) => {
            if (delayMs.push === 0) notify(id, answer);
            else clock.timer(() => notify(id, answer)).set(clock.now() + delayMs.push);
          }),
        );
      },
      async claim(claim) {
        if (member.rejectsClaims && !isTokenClaim(claim)) throw new Error("refused");
        return delayAnswer(isTokenClaim(claim) ? delayMs.ticket : 0, inner.claim(claim));
      },
      renew: (claims) => delayAnswer(delayMs.renew, inner.renew(claims)),
      release: (releases) => delayAnswer(delayMs.release, inner.release(releases)),
      list: (query, options) => inner.list(query, options),
    }),
    restartEmpty() {
      member.store = memoryStore(clock);
      inner = memory({ store: member.store });
      void inner.open(NO_EVENTS);
    },
  };
  return member;
}

interface Fixture {
  readonly clock: FakeClock;
  readonly members: readonly [TestMember, TestMember, TestMember];
  readonly driver: Driver;
  /** Receives the pushes to the client under test. */
  onPush(tell: (answer: Answer) => void): void;
  /** Another client, of the present stores. */
  openOtherClient(): Promise<Driver>;
}

async function createFixture(): Promise<Fixture> {
  const clock = new FakeClock();
  const members = [createMember(clock), createMember(clock), createMember(clock)] as const;
  const options = { clock, random: () => 0.5 };
  const driver = quorum(
    members.map((member) => member.driver),
    options,
  );
  let resolveAnswer = (_: Answer): void => undefined;
  await driver.open(
    toDriverEvents((_, answer) => {
      if (answer !== undefined) resolveAnswer(answer);
    }),
  );
  return {
    onPush: (next) => {
      resolveAnswer = next;
    },
    clock,
    members,
    driver,
    async openOtherClient() {
      const driver = quorum(
        members.map(({ store }) => memory({ store })),
        options,
      );
      await driver.open(NO_EVENTS);
      return driver;
    },
  };
}

async function settleWithin<T>({ clock }: Fixture, ms: number, pending: Promise<T>): Promise<T> {
  const settlement = Promise.allSettled([pending]);
  await clock.advance(ms);
  const [result] = await settlement;
  if (result.status === "rejected") throw result.reason;
  return result.value;
}

const directDriver = ({ store }: TestMember): Driver => memory({ store });

test("a claim released while it returns the vote of a tie is not placed again", async () => {
  const fixture = await createFixture();
  const [one, two, three] = fixture.members;
  const [first, second] = [makeClaim("key"), makeClaim("key")];
  await directDriver(two).claim(first);
  await directDriver(three).claim(second);
  const ownClaim = makeClaim("key", { ttlMs: 60_000 });
  expect(await settleWithin(fixture, 10, fixture.driver.claim(ownClaim))).toMatchObject({ state: "waiting" });
  await fixture.clock.advance(100);
  // the tie has lasted long enough: the vote is being released
  one.delayMs.release = 300;
  const renewal = fixture.driver.renew([ownClaim]);
  await fixture.clock.advance(100);
  const release = fixture.driver.release(toReleases(ownClaim));
  await fixture.clock.advance(1_000);
  await Promise.allSettled([renewal, release]);
  const memberStates = await Promise.all(
    fixture.members.map((member) => directDriver(member).list({ prefix: "" }, { max: 10 })),
  );
  expect(memberStates.flatMap(({ items }) => items).map(({ tag }) => tag)).toHaveLength(2);
});

test("a claim that asked for a token, and lost its majority for a moment, is not granted with that token", async () => {
  const fixture = await createFixture();
  const [, two, three] = fixture.members;
  const ownClaim = makeClaim("key", { ttlMs: 20_000 });
  const renewAfter = (ms: number): Promise<Answer | null> =>
    settleWithin(fixture, ms, fixture.driver.claim(ownClaim)).catch(() => null);
  const lateTickets = (ms: number): void => {
    for (const { delayMs } of fixture.members) delayMs.ticket = ms;
  };
  // votes from the first two, a ticket at each; the tickets' answers are lost
  three.rejectsClaims = true;
  lateTickets(5_000);
  await expect(settleWithin(fixture, 1_200, fixture.driver.claim(ownClaim))).rejects.toThrow(
    /has not agreed on its token/,
  );
  // the second comes back empty, and its answer that it has no such claim arrives too late
  two.restartEmpty();
  two.delayMs.renew = 1_200;
  await renewAfter(1_500);
  two.delayMs.renew = 0;
  const otherClient = await fixture.openOtherClient();
  const otherClaim = makeClaim("key", { ttlMs: 20_000 });
  const { token } = await settleWithin(fixture, 1_500, otherClient.claim(otherClaim)).then(expectHeld);
  await settleWithin(fixture, 100, otherClient.release(toReleases(otherClaim)));
  lateTickets(0);
  await fixture.clock.advance(5_000);
  // its old token would be below theirs
  expect(await renewAfter(1_500)).toEqual({ state: "none" });
  expect(
    (await settleWithin(fixture, 1_500, fixture.driver.claim(makeClaim("key"))).then(expectHeld)).token,
  ).toBeGreaterThan(token);
});

test("an unknown answer for one claim costs nothing to the others renewed by the same call", async () => {
  const fixture = await createFixture();
  const [first, second] = [makeClaim("first", { ttlMs: 8_000 }), makeClaim("second", { ttlMs: 8_000 })];
  const { token } = await settleWithin(fixture, 10, fixture.driver.claim(first)).then(expectHeld);
  for (const { delayMs } of fixture.members) delayMs.ticket = 5_000;
  await expect(settleWithin(fixture, 1_200, fixture.driver.claim(second))).rejects.toThrow(
    /has not agreed on its token/,
  );
  expect(await settleWithin(fixture, 1_200, fixture.driver.renew([second, first]))).toMatchObject([
    undefined,
    { state: "held", token },
  ]);
  await expect(settleWithin(fixture, 1_200, fixture.driver.renew([second]))).rejects.toThrow(
    /has not agreed on its token/,
  );
  // nor is it reported as lost, which a false would mean
  const detached = fixture.driver.detach?.([second, first]) ?? Promise.resolve([]);
  await expect(settleWithin(fixture, 1_200, detached)).rejects.toThrow(/cannot detach: the state of a/);
});

test("a grant pushed late, on a separate connection, does not count for the entry made since", async () => {
  const fixture = await createFixture();
  const [one, two, three] = fixture.members;
  const [first, second, third, otherClaim] = [makeClaim("key"), makeClaim("key"), makeClaim("key"), makeClaim("key")];
  await directDriver(one).claim(first);
  await directDriver(two).claim(second);
  await directDriver(three).claim(third);
  const ownClaim = makeClaim("key", { ttlMs: 20_000 });
  const renew = (): Promise<unknown> => settleWithin(fixture, 10, fixture.driver.renew([ownClaim]));
  const pushes: Answer[] = [];
  fixture.onPush((answer) => pushes.push(answer));
  expect(await settleWithin(fixture, 10, fixture.driver.claim(ownClaim))).toMatchObject({ state: "waiting" });
  await directDriver(two).claim(otherClaim);
  // the second's vote becomes this claim's; the client asks, and the push is delayed for long
  two.delayMs.push = 3_000;
  await directDriver(two).release(toReleases(second));
  await renew();
  await fixture.clock.advance(200);
  // one vote of three is a tie: released, and the rival has it
  await renew();
  expect(await directDriver(two).renew([otherClaim])).toMatchObject([{ state: "held" }]);
  await fixture.clock.advance(3_500);
  await directDriver(three).release(toReleases(third));
  await fixture.clock.advance(1_000);
  expect(await directDriver(two).renew([otherClaim])).toMatchObject([{ state: "held" }]);
  expect(pushes).toEqual([]);
  expect(await settleWithin(fixture, 10, fixture.driver.renew([ownClaim]))).toMatchObject([{ state: "waiting" }]);
  // asked again, the entry has its real state
  await directDriver(two).release(toReleases(otherClaim));
  await renew();
  expect(await settleWithin(fixture, 10, fixture.driver.renew([ownClaim]))).toMatchObject([{ state: "held" }]);
});

function expectHeld(answer: Answer): Answer & { state: "held" } {
  if (answer.state !== "held") throw new Error(`expected held, not ${answer.state}`);
  return answer;
}
