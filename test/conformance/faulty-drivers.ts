// Drivers that each break one guarantee of the contract, derived from the memory driver. The suite must find every one.

import type { MemoryStore } from "../../src/drivers/memory.ts";
import { memory } from "../../src/drivers/memory.ts";
import type { Answer, Claim, ClaimView, Driver } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { randomId } from "../../src/util/ids.ts";
import { toReleases } from "../support/releases.ts";

export type FaultyDriver = {
  readonly fault: string;
  /** Tests that must fail, by the beginning of their names, with their messages. */
  readonly caughtBy: Readonly<Record<string, RegExp>>;
  /** Short by default, since most tests wait in vain; longer where the fault is one of time. */
  readonly timeScale?: number;
  create(store: MemoryStore): Driver;
};

/** A driver that changes claims on the way to the store: the same claim always in the same way. */
function mapAnswers(store: MemoryStore, change: (claim: Claim) => Partial<Claim>): Driver {
  const correctDriver = memory({ store });
  const changedClaims = new WeakMap<Claim, Claim>();
  const changed = (claim: Claim): Claim => {
    const changedClaim = changedClaims.get(claim) ?? { ...claim, ...change(claim) };
    changedClaims.set(claim, changedClaim);
    return changedClaim;
  };
  return delegate(correctDriver, {
    claim: (claim) => correctDriver.claim(changed(claim)),
    renew: (claims) => correctDriver.renew(claims.map(changed)),
    release: (releases) =>
      correctDriver.release(releases.map((release) => ({ ...release, claim: changed(release.claim) }))),
  });
}

/** A driver that changes answers on the way back. */
function changeAnswers(store: MemoryStore, change: (answer: Answer, claim: Claim) => Answer): Driver {
  const correctDriver = memory({ store });
  return delegate(correctDriver, {
    claim: async (claim) => change(await correctDriver.claim(claim), claim),
    renew: async (claims) =>
      (await correctDriver.renew(claims)).map((answer, index) => answer && change(answer, claims[index] as Claim)),
  });
}

const FIRST_TOKENS = new WeakMap<MemoryStore, bigint>();

export const FAULTY_DRIVERS: readonly FaultyDriver[] = [
  {
    fault: "releases nothing, but says so",
    caughtBy: {
      "a free key is granted at once": /'held' !== 'none'/,
      "a claim of a busy key waits": /timed out waiting for the grant/,
      "mutex: a wait ends with the release": /LockTimeoutError/,
    },
    create: (store) => delegate(memory({ store }), { release: async (releases) => releases.map(() => true) }),
  },
  {
    fault: "says of a repeated release that it was there",
    caughtBy: {
      "a repeated release answers false": /true/,
      "an expired holder is answered none": /true/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, {
        release: async (releases) => (await correctDriver.release(releases)).map(() => true),
      });
    },
  },
  {
    fault: "releases a claim that it is to forget",
    caughtBy: { "forget() changes nothing in the store": /'none' !== 'held'/ },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, { forget: (claim) => void correctDriver.release(toReleases(claim)) });
    },
  },
  {
    fault: "makes a new claim of one that is asked for again",
    caughtBy: {
      "asking again with the same id": /waiting/,
      "a claim whose reply was lost": /waiting/,
      "a semaphore lets in as many": /takes no second permit/,
    },
    create(store) {
      const correctDriver = memory({ store });
      const last = new Map<string, Claim>();
      const withFreshId = (claim: Claim): Claim => {
        const changedClaim = { ...claim, id: last.has(claim.id) ? randomId() : claim.id };
        last.set(claim.id, changedClaim);
        return changedClaim;
      };
      const current = (claim: Claim): Claim => last.get(claim.id) ?? claim;
      return delegate(correctDriver, {
        claim: (claim) => correctDriver.claim(withFreshId(claim)),
        renew: (claims) => correctDriver.renew(claims.map(current)),
        release: (releases) =>
          correctDriver.release(releases.map((release) => ({ ...release, claim: current(release.claim) }))),
      });
    },
  },
  {
    fault: "puts a claim at the end of the line when it is renewed",
    caughtBy: {
      "a repeated claim or renew keeps the entry": /timed out waiting for the grant/,
      "seed 1: random commands": /is listed from its front/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, {
        async renew(claims) {
          const answers = await correctDriver.renew(claims);
          const waiting = claims.filter((_, index) => answers[index]?.state === "waiting");
          await correctDriver.release(toReleases(...waiting));
          for (const claim of waiting) await correctDriver.claim(claim);
          return answers;
        },
      });
    },
  },
  {
    fault: "leaves a queue entry of a claim that does not wait",
    caughtBy: {
      "wait: false on a busy key leaves no trace": /2 !== 1/,
      "tryAcquire and wait: 0 ask once": /timed out waiting for 1 claims in the store/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, {
        async claim(claim) {
          const answer = await correctDriver.claim({ ...claim, wait: true });
          return claim.wait || answer.state === "held" ? answer : { state: "none" };
        },
      });
    },
  },
  {
    fault: "forgets at once which claims were given up while unanswered",
    caughtBy: {
      "a release with an unanswered claim call": /'held' !== 'none'/,
      "an id given up while unanswered": /'held' !== 'none'/,
      "an abort before the claim reaches the store, which gets it after": /timed out waiting for an empty store/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, {
        release: (releases) => correctDriver.release(toReleases(...releases.map(({ claim }) => claim))),
      });
    },
  },
  {
    fault: "grants the same token again",
    caughtBy: {
      "tokens rise from grant to grant": /after/,
      "who reads and writes": /tokens rise from holder to holder/,
      "a busy client passes the lock on": /after/,
    },
    create: (store) =>
      changeAnswers(store, (answer) => {
        if (answer.state !== "held") return answer;
        const token = FIRST_TOKENS.get(store) ?? answer.token;
        FIRST_TOKENS.set(store, token);
        return { ...answer, token };
      }),
  },
  {
    fault: "gives a run of tokens, but sets only one aside",
    caughtBy: {
      "token runs do not overlap": /a token range begins after the last one/,
      "the token of several keys lies above": /is above those of/,
    },
    create(store) {
      const correctDriver = mapAnswers(store, () => ({ tokenCount: 1 }));
      const whole = (answer: Answer, claim: Claim): Answer =>
        answer.state === "held" ? { ...answer, tokenCount: claim.tokenCount } : answer;
      return delegate(correctDriver, {
        claim: async (claim) => whole(await correctDriver.claim(claim), claim),
        renew: async (claims) =>
          (await correctDriver.renew(claims)).map((answer, index) => answer && whole(answer, claims[index] as Claim)),
      });
    },
  },
  {
    fault: "ignores the floor",
    caughtBy: {
      "a token is at least the claim's floor": /not below its floor/,
      "a floor more than a day ahead is refused": /Missing expected rejection/,
    },
    create: (store) => mapAnswers(store, () => ({ floor: 0n })),
  },
  {
    fault: "lets leases live a hundred times as long",
    caughtBy: {
      "an expired holder is answered none": /timed out waiting for the grant/,
      "the next waiter is granted when the holder's lease ends": /timed out waiting for the grant/,
    },
    create(store) {
      const correctDriver = mapAnswers(store, ({ ttlMs }) => ({ ttlMs: ttlMs === "session" ? ttlMs : ttlMs * 100 }));
      const shortened = (answer: Answer): Answer =>
        answer.state === "none" ? answer : { ...answer, remainingMs: answer.remainingMs / 100 };
      return delegate(correctDriver, {
        claim: async (claim) => shortened(await correctDriver.claim(claim)),
        renew: async (claims) => (await correctDriver.renew(claims)).map((answer) => answer && shortened(answer)),
      });
    },
  },
  {
    fault: "ends leases early",
    timeScale: 1,
    caughtBy: {
      "the next waiter is granted when the holder's lease ends": /lasted its full length/,
      "an id given up while unanswered": /'held' !== 'none'/,
    },
    create: (store) => mapAnswers(store, ({ ttlMs }) => ({ ttlMs: ttlMs === "session" ? ttlMs : ttlMs / 2 })),
  },
  {
    fault: "looks instead of renewing",
    timeScale: 1,
    caughtBy: {
      "a lease that is restarted by renew does not end": /waiting/,
      "a held lock is renewed": /fulfilled/,
    },
    create(store) {
      const correctDriver = memory({ store });
      const last = new Map<string, Answer>();
      return delegate(correctDriver, {
        async claim(claim) {
          const answer = await correctDriver.claim(claim);
          last.set(claim.id, answer);
          return answer;
        },
        renew: (claims) =>
          Promise.all(
            claims.map(async (claim) => {
              const previous = last.get(claim.id);
              return previous?.state === "held" ? previous : ((await correctDriver.renew([claim]))[0] as Answer);
            }),
          ),
      });
    },
  },
  {
    fault: "takes every claim for an exclusive one",
    caughtBy: {
      "readers share": /is granted/,
      "a semaphore lets in as many": /is granted/,
      "seed 1: random commands": /the table says held/,
    },
    create: (store) =>
      mapAnswers(store, ({ locks }) => ({
        locks: locks.map(({ key }) => ({ key, permits: ALL_PERMITS, limit: ALL_PERMITS })) as unknown as Claim["locks"],
      })),
  },
  {
    fault: "takes every limit for the highest",
    caughtBy: {
      "a semaphore lets in as many": /a claim of a busy key waits/,
      "limits that differ": /a claim of a busy key waits/,
      "semaphore of one: held by one": /LockHandle/,
    },
    create: (store) =>
      mapAnswers(store, ({ locks }) => ({
        locks: locks.map((lockSpec) => ({ ...lockSpec, limit: ALL_PERMITS })) as unknown as Claim["locks"],
      })),
  },
  {
    fault: "folds the case of keys",
    caughtBy: {
      "keys are compared byte by byte": /"CASE" is granted/,
      "only keys that begin with the prefix": /"Job:1" is granted/,
    },
    create: (store) =>
      mapAnswers(store, ({ locks }) => ({
        locks: locks.map((lockSpec) => ({ ...lockSpec, key: lockSpec.key.toLowerCase() })) as unknown as Claim["locks"],
      })),
  },
  {
    fault: "answers a batch backwards",
    caughtBy: {
      "a batch is answered in the order of its claims": /waiting/,
      "seed 1: random commands": /the table says waiting/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, { renew: async (claims) => [...(await correctDriver.renew(claims))].reverse() });
    },
  },
  {
    fault: "shows ids",
    caughtBy: {
      "a listed claim shows its lock specs": /[a-z2-7]{26}/,
    },
    create(store) {
      const correctDriver = memory({ store });
      const ids = new Map<string, string>();
      return delegate(correctDriver, {
        claim(claim) {
          ids.set(claim.label, claim.id);
          return correctDriver.claim(claim);
        },
        async list(query, options) {
          const page = await correctDriver.list(query, options);
          const items = page.items.map((view): ClaimView => ({ ...view, tag: ids.get(view.label) ?? "" }));
          return { ...page, items };
        },
      });
    },
  },
  {
    fault: "lists the same page for ever",
    caughtBy: {
      "a list comes in pages": /timed out waiting for the last page/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, { list: (query, { max }) => correctDriver.list(query, { max }) });
    },
  },
  {
    fault: "pushes a grant before it is one",
    caughtBy: {
      "what is pushed is what asking tells": /\d+n/,
    },
    create(store) {
      const correctDriver = memory({ store });
      return delegate(correctDriver, {
        open: (events) =>
          correctDriver.open({
            recheck: (id) => events.recheck(id),
            disconnected: () => events.disconnected(),
            reconnected: () => events.reconnected(),
            recalled: (id) => events.recalled(id),
            heldTokens: (id) => events.heldTokens(id),
            pushed(id, answer) {
              if (answer.state === "held") events.pushed(id, { ...answer, token: answer.token - 1n });
            },
          }),
      });
    },
  },
  {
    fault: "goes on speaking when it is closed",
    caughtBy: {
      "a closed driver says nothing more": /!== 0/,
    },
    create(store) {
      const correctDriver = memory({ store });
      let timer: NodeJS.Timeout | undefined;
      return delegate(correctDriver, {
        open: (events) => {
          timer = setInterval(() => events.reconnected(), 5).unref();
          setTimeout(() => clearInterval(timer), 2_000).unref();
          return correctDriver.open(events);
        },
      });
    },
  },
];
