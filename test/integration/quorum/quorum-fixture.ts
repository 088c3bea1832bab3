/** A majority of lock tables in simulated time, of which a test disconnects or delays some. */

import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import type { Answer, Claim, ClaimId, Driver, DriverEvents } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { toDriverEvents } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";

export interface QuorumFixture {
  readonly clock: FakeClock;
  readonly driver: Driver;
  readonly members: readonly TestMember[];
  readonly pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  /** How often the driver has reported a break. */
  breakCount(): number;
}

/** A lock table that a test disconnects or delays. */
export interface TestMember {
  readonly driver: Driver;
  /** It reports that its connection broke. */
  breakConnection(): void;
  isAway: boolean;
  /** Its renewals leave every answer out. */
  omitsAnswers: boolean;
  /** The delay of its replies to a vote's claim. */
  claimDelayMs: number;
  /** The delay of its replies to a ticket's claim. */
  tokenClaimDelayMs: number;
  /** The delay of its replies to a release. */
  releaseDelayMs: number;
  /** The keys of claims and releases that it received. */
  readonly claimedKeys: string[];
  readonly releasedKeys: string[];
}

function createMember(clock: FakeClock): TestMember {
  const inner = memory({ store: memoryStore(clock) });
  let events: DriverEvents | undefined;
  const unlessAway = async <T>(call: () => Promise<T>): Promise<T> => {
    if (member.isAway) throw new Error("away");
    return call();
  };
  const delayFor = (claim: Claim): number =>
    claim.locks[0].key.includes("#") ? member.tokenClaimDelayMs : member.claimDelayMs;
  const member: TestMember = {
    isAway: false,
    omitsAnswers: false,
    claimDelayMs: 0,
    tokenClaimDelayMs: 0,
    releaseDelayMs: 0,
    claimedKeys: [],
    releasedKeys: [],
    breakConnection: () => events?.disconnected(),
    driver: delegate(inner, {
      open(driverEvents) {
        events = driverEvents;
        return inner.open(driverEvents);
      },
      claim: (claim) =>
        unlessAway(async () => {
          member.claimedKeys.push(claim.locks[0].key);
          const answer = await inner.claim(claim);
          const ms = delayFor(claim);
          if (ms > 0) await new Promise<void>((resolve) => clock.timer(resolve).set(clock.now() + ms));
          return answer;
        }),
      renew: (claims) =>
        unlessAway(async () => (await inner.renew(claims)).map((answer) => (member.omitsAnswers ? undefined : answer))),
      release: (releases) =>
        unlessAway(async () => {
          member.releasedKeys.push(...releases.map(({ claim }) => claim.locks[0].key));
          const wasPresent = await inner.release(releases);
          const { releaseDelayMs } = member;
          if (releaseDelayMs > 0)
            await new Promise<void>((resolve) => clock.timer(resolve).set(clock.now() + releaseDelayMs));
          return wasPresent;
        }),
      list: (query, options) => unlessAway(() => inner.list(query, options)),
    }),
  };
  return member;
}

export async function createQuorumFixture(count = 3): Promise<QuorumFixture> {
  const clock = new FakeClock();
  const members = Array.from({ length: count }, () => createMember(clock));
  const driver = quorum(
    members.map((member) => member.driver),
    { clock, random: () => 0.5 },
  );
  const pushes: QuorumFixture["pushes"] = [];
  let breaks = 0;
  const events = toDriverEvents((id, answer) => pushes.push({ id, answer }));
  await driver.open({ ...events, disconnected: () => void breaks++ });
  return { clock, driver, members, pushes, breakCount: () => breaks };
}

/** Advances time until the promise settles. */
export async function settleWithin<T>({ clock }: QuorumFixture, ms: number, pending: Promise<T>): Promise<T> {
  const settlement = Promise.allSettled([pending]);
  await clock.advance(ms);
  const [result] = await settlement;
  if (result.status === "rejected") throw result.reason;
  return result.value;
}
