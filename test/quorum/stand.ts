/** A majority of lock tables in a time of its own, of which a test takes some away, or makes them slow. */

import { delegate } from "../../src/conformance/delegate.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../src/spi/driver.ts";
import type { FakeClock } from "../support/fake-clock.ts";
import { fakeClock } from "../support/fake-clock.ts";

export interface Stand {
  readonly clock: FakeClock;
  readonly driver: Driver;
  readonly members: readonly Member[];
  readonly pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
}

/** A lock table that a test takes away, or makes slow. */
export interface Member {
  readonly driver: Driver;
  isAway: boolean;
  /** Its renewals leave every answer out. */
  leavesOut: boolean;
  /** Its replies to a vote's claim take so long. */
  lateMs: number;
  /** Its replies to a ticket's claim take so long. */
  lateTicketMs: number;
  /** Its replies to a release take so long. */
  lateReleaseMs: number;
  /** The keys of claims and releases that it got. */
  readonly claimed: string[];
  readonly released: string[];
}

function memberOf(clock: FakeClock): Member {
  const inner = memory({ store: memoryStore(clock) });
  const away = async <T>(call: () => Promise<T>): Promise<T> => {
    if (member.isAway) throw new Error("away");
    return call();
  };
  const lateBy = (claim: Claim): number => (claim.holds[0].key.includes("#") ? member.lateTicketMs : member.lateMs);
  const member: Member = {
    isAway: false,
    leavesOut: false,
    lateMs: 0,
    lateTicketMs: 0,
    lateReleaseMs: 0,
    claimed: [],
    released: [],
    driver: delegate(inner, {
      claim: (claim) =>
        away(async () => {
          member.claimed.push(claim.holds[0].key);
          const answer = await inner.claim(claim);
          const ms = lateBy(claim);
          if (ms > 0) await new Promise<void>((done) => clock.timer(done).set(clock.now() + ms));
          return answer;
        }),
      renew: (claims) =>
        away(async () => (await inner.renew(claims)).map((answer) => (member.leavesOut ? undefined : answer))),
      release: (claims, unanswered) =>
        away(async () => {
          member.released.push(...claims.map(({ holds }) => holds[0].key));
          const there = await inner.release(claims, unanswered);
          const { lateReleaseMs } = member;
          if (lateReleaseMs > 0) await new Promise<void>((done) => clock.timer(done).set(clock.now() + lateReleaseMs));
          return there;
        }),
      list: (filter, max, after) => away(() => inner.list(filter, max, after)),
    }),
  };
  return member;
}

export async function stand(count = 3): Promise<Stand> {
  const clock = fakeClock();
  const members = Array.from({ length: count }, () => memberOf(clock));
  const driver = quorum(
    members.map((member) => member.driver),
    { clock, random: () => 0.5 },
  );
  const pushes: Stand["pushes"] = [];
  await driver.open((id, answer) => pushes.push({ id, answer }));
  return { clock, driver, members, pushes };
}

/** Settles what is asked while time passes. */
export async function within<T>({ clock }: Stand, ms: number, asked: Promise<T>): Promise<T> {
  const settled = Promise.allSettled([asked]);
  await clock.pass(ms);
  const [result] = await settled;
  if (result.status === "rejected") throw result.reason;
  return result.value;
}
