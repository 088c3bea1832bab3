/** Interleavings of one claim's votes with its release, and with other grants: each is forced, none is waited for. */

import { expect, test } from "vitest";
import { delegate } from "../../src/conformance/delegate.ts";
import type { MemoryStore } from "../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import type { Answer, Claim, Driver } from "../../src/spi/driver.ts";
import type { FakeClock } from "../support/fake-clock.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { claimOf } from "../support/redis-scene.ts";

/** One store, with a driver for us whose replies a test holds back, and one for the others. */
interface Member {
  store: MemoryStore;
  readonly ours: Driver;
  /** Replies to these verbs are held back for so long. */
  readonly lateMs: { ticket: number; renew: number; release: number; push: number };
  refusesVotes: boolean;
  restartEmpty(): void;
}

function memberOf(clock: FakeClock): Member {
  const lateMs = { ticket: 0, renew: 0, release: 0, push: 0 };
  let inner: Driver;
  async function late<T>(ms: number, answer: Promise<T>): Promise<T> {
    const result = await answer;
    if (ms > 0) await new Promise<void>((done) => clock.timer(done).set(clock.now() + ms));
    return result;
  }
  const isTicket = ({ holds }: Claim): boolean => holds[0].key.includes("#");
  const member: Member = {
    store: memoryStore(clock),
    lateMs,
    refusesVotes: false,
    ours: delegate(memory(), {
      open: (notify) => {
        inner = memory({ store: member.store });
        return inner.open((id, answer) => {
          if (lateMs.push === 0) notify(id, answer);
          else clock.timer(() => notify(id, answer)).set(clock.now() + lateMs.push);
        });
      },
      async claim(claim) {
        if (member.refusesVotes && !isTicket(claim)) throw new Error("refused");
        return late(isTicket(claim) ? lateMs.ticket : 0, inner.claim(claim));
      },
      renew: (claims) => late(lateMs.renew, inner.renew(claims)),
      release: (claims, unanswered) => late(lateMs.release, inner.release(claims, unanswered)),
      list: (...args) => inner.list(...args),
    }),
    restartEmpty() {
      member.store = memoryStore(clock);
      inner = memory({ store: member.store });
      void inner.open(() => undefined);
    },
  };
  return member;
}

interface Scene {
  readonly clock: FakeClock;
  readonly members: readonly [Member, Member, Member];
  readonly ours: Driver;
  /** Whom to tell what is pushed to us. */
  pushed(tell: (answer: Answer) => void): void;
  /** Another client's, of the stores as they are now. */
  other(): Promise<Driver>;
}

async function scene(): Promise<Scene> {
  const clock = fakeClock();
  const members = [memberOf(clock), memberOf(clock), memberOf(clock)] as const;
  const options = { clock, random: () => 0.5 };
  const ours = quorum(
    members.map((member) => member.ours),
    options,
  );
  let tell = (_: Answer): void => undefined;
  await ours.open((_, answer) => {
    if (answer !== undefined) tell(answer);
  });
  return {
    pushed: (next) => {
      tell = next;
    },
    clock,
    members,
    ours,
    async other() {
      const driver = quorum(
        members.map(({ store }) => memory({ store })),
        options,
      );
      await driver.open(() => undefined);
      return driver;
    },
  };
}

async function within<T>({ clock }: Scene, ms: number, asked: Promise<T>): Promise<T> {
  const settled = Promise.allSettled([asked]);
  await clock.pass(ms);
  const [result] = await settled;
  if (result.status === "rejected") throw result.reason;
  return result.value;
}

const direct = ({ store }: Member): Driver => memory({ store });

test("a claim that is released while it gives back the vote of a tie is not placed again", async () => {
  const it = await scene();
  const [one, two, three] = it.members;
  const [first, second] = [claimOf("key"), claimOf("key")];
  await direct(two).claim(first);
  await direct(three).claim(second);
  const ours = claimOf("key", { ttlMs: 60_000 });
  expect(await within(it, 10, it.ours.claim(ours))).toMatchObject({ state: "waiting" });
  await it.clock.pass(100);
  // the tie has lasted long enough: the vote is being given back
  one.lateMs.release = 300;
  const renewed = it.ours.renew([ours]);
  await it.clock.pass(100);
  const released = it.ours.release([ours]);
  await it.clock.pass(1_000);
  await Promise.allSettled([renewed, released]);
  const there = await Promise.all(it.members.map((member) => direct(member).list({ prefix: "" }, 10)));
  expect(there.flat().map(({ tag }) => tag)).toHaveLength(2);
});

test("who had asked for a token, and lost its majority for a moment, is not granted by that token", async () => {
  const it = await scene();
  const [, two, three] = it.members;
  const ours = claimOf("key", { ttlMs: 20_000 });
  const ask = (ms: number): Promise<Answer | null> => within(it, ms, it.ours.claim(ours)).catch(() => null);
  const lateTickets = (ms: number): void => {
    for (const { lateMs } of it.members) lateMs.ticket = ms;
  };
  // votes by the first two, a ticket at each; nobody hears of the tickets
  three.refusesVotes = true;
  lateTickets(5_000);
  await expect(within(it, 1_200, it.ours.claim(ours))).rejects.toThrow(/has not agreed on its token/);
  // the second comes back empty, and that it knows nothing of us is heard too late
  two.restartEmpty();
  two.lateMs.renew = 1_200;
  await ask(1_500);
  two.lateMs.renew = 0;
  const rival = await it.other();
  const theirs = claimOf("key", { ttlMs: 20_000 });
  const { token } = await within(it, 1_500, rival.claim(theirs)).then(held);
  await within(it, 100, rival.release([theirs]));
  lateTickets(0);
  await it.clock.pass(5_000);
  // its old token would be below theirs
  expect(await ask(1_500)).toEqual({ state: "none" });
  expect((await within(it, 1_500, it.ours.claim(claimOf("key"))).then(held)).token).toBeGreaterThan(token);
});

test("what is not known of one claim costs the others that are renewed by the same call nothing", async () => {
  const it = await scene();
  const [first, second] = [claimOf("first", { ttlMs: 8_000 }), claimOf("second", { ttlMs: 8_000 })];
  const { token } = await within(it, 10, it.ours.claim(first)).then(held);
  for (const { lateMs } of it.members) lateMs.ticket = 5_000;
  await expect(within(it, 1_200, it.ours.claim(second))).rejects.toThrow(/has not agreed on its token/);
  expect(await within(it, 1_200, it.ours.renew([second, first]))).toMatchObject([undefined, { state: "held", token }]);
  await expect(within(it, 1_200, it.ours.renew([second]))).rejects.toThrow(/has not agreed on its token/);
  // nor is it told to be lost, which a false would say
  const detached = it.ours.detach?.([second, first]) ?? Promise.resolve([]);
  await expect(within(it, 1_200, detached)).rejects.toThrow(/is not known/);
});

test("a grant that is pushed late, on a connection of its own, is none of the place that was made since", async () => {
  const it = await scene();
  const [one, two, three] = it.members;
  const [first, second, third, rival] = [claimOf("key"), claimOf("key"), claimOf("key"), claimOf("key")];
  await direct(one).claim(first);
  await direct(two).claim(second);
  await direct(three).claim(third);
  const ours = claimOf("key", { ttlMs: 20_000 });
  const renew = (): Promise<unknown> => within(it, 10, it.ours.renew([ours]));
  const pushes: Answer[] = [];
  it.pushed((answer) => pushes.push(answer));
  expect(await within(it, 10, it.ours.claim(ours))).toMatchObject({ state: "waiting" });
  await direct(two).claim(rival);
  // the second's vote becomes ours; we ask, and the push of it is on its way for long
  two.lateMs.push = 3_000;
  await direct(two).release([second]);
  await renew();
  await it.clock.pass(200);
  // one of three is a tie's: given back, and the rival has it
  await renew();
  expect(await direct(two).renew([rival])).toMatchObject([{ state: "held" }]);
  await it.clock.pass(3_500);
  await direct(three).release([third]);
  await it.clock.pass(1_000);
  expect(await direct(two).renew([rival])).toMatchObject([{ state: "held" }]);
  expect(pushes).toEqual([]);
  expect(await within(it, 10, it.ours.renew([ours]))).toMatchObject([{ state: "waiting" }]);
  // asked about it, the place is what it is
  await direct(two).release([rival]);
  await renew();
  expect(await within(it, 10, it.ours.renew([ours]))).toMatchObject([{ state: "held" }]);
});

function held(answer: Answer): Answer & { state: "held" } {
  if (answer.state !== "held") throw new Error(`expected held, not ${answer.state}`);
  return answer;
}
