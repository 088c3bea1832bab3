/** Several clients of one majority in simulated time, each with its own links, which a test breaks in every way. */

import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { QuorumOptions } from "../../../src/drivers/quorum/driver.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { NO_EVENTS, toDriverEvents, toOnPush } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";

export const DELAYED_MS = 4_000;

/** The state of a client's link to one member. */
export interface FaultyLink {
  /**
   * Null: no fault. "away": no call arrives. "mute": calls arrive, replies do not. "late": the same, and the call is executed
   * DELAYED_MS later. "silent": no call arrives, and no failure is reported. An error: it is the answer.
   */
  fault: null | "away" | "silent" | "mute" | "late" | Error;
  /** The fault affects this verb alone; null: all. */
  faultyVerb: "claim" | "release" | null;
  /** The delay of replies. */
  readonly delayMs: { claim: number; ticket: number; renew: number; release: number; push: number };
  /** The calls that arrived: "claim key". */
  readonly receivedCalls: string[];
}

export interface MemberStore {
  memory: MemoryStore;
  /** A driver without links. */
  readonly direct: () => Driver;
  restartEmpty(): void;
}

export interface QuorumClient {
  readonly driver: Driver;
  readonly links: readonly FaultyLink[];
  readonly pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
}

export interface LinkedQuorum {
  readonly clock: FakeClock;
  readonly stores: readonly MemberStore[];
  openClient(options?: QuorumOptions, before?: (links: readonly FaultyLink[]) => void): Promise<QuorumClient>;
  /** Advances time until the promise settles. */
  settleWithin<T>(ms: number, asked: Promise<T>): Promise<T>;
}

export function createLinkedQuorum(count = 3): LinkedQuorum {
  const clock = new FakeClock();
  const stores = Array.from({ length: count }, (): MemberStore => {
    const store: MemberStore = {
      memory: memoryStore(clock),
      direct: () => memory({ store: store.memory }),
      restartEmpty() {
        store.memory = memoryStore(clock);
      },
    };
    return store;
  });
  return {
    clock,
    stores,
    async openClient(options = {}, before) {
      const linked = stores.map((store) => connectLink(clock, store));
      const links = linked.map(({ link }) => link);
      before?.(links);
      const driver = quorum(
        linked.map((link) => link.driver),
        { clock, random: () => 0.5, ...options },
      );
      const pushes: QuorumClient["pushes"] = [];
      await driver.open(toDriverEvents((id, answer) => pushes.push({ id, answer })));
      return { driver, links, pushes };
    },
    async settleWithin(ms, pending) {
      const settlement = Promise.allSettled([pending]);
      await clock.advance(ms);
      const [result] = await settlement;
      if (result.status === "rejected") throw result.reason;
      return result.value;
    },
  };
}

function connectLink(clock: FakeClock, store: MemberStore): { readonly driver: Driver; readonly link: FaultyLink } {
  const link: FaultyLink = {
    fault: null,
    faultyVerb: null,
    delayMs: { claim: 0, ticket: 0, renew: 0, release: 0, push: 0 },
    receivedCalls: [],
  };
  const pause = (ms: number): Promise<void> =>
    ms === 0 ? Promise.resolve() : new Promise((resolve) => clock.timer(resolve).set(clock.now() + ms));
  let deliver: (id: ClaimId | null, answer?: Answer) => void = () => undefined;
  let openedStore: MemoryStore | null = null;
  let inner: Driver;
  const currentDriver = async (): Promise<Driver> => {
    if (openedStore === store.memory) return inner;
    openedStore = store.memory;
    inner = store.direct();
    await inner.open(toDriverEvents((id, answer) => void pause(link.delayMs.push).then(() => deliver(id, answer))));
    return inner;
  };
  async function call<T>(callText: string, lateMs: number, operation: (driver: Driver) => Promise<T>): Promise<T> {
    const fault = link.faultyVerb === null || callText.startsWith(link.faultyVerb) ? link.fault : null;
    if (fault === "away") throw new Error("away");
    if (fault instanceof Error) throw fault;
    if (fault === "silent") return new Promise(() => undefined);
    if (fault === "late") {
      void pause(DELAYED_MS).then(async () => operation(await currentDriver()));
      throw new Error("no answer yet");
    }
    link.receivedCalls.push(callText);
    const result = await operation(await currentDriver());
    if (fault === "mute") throw new Error("no answer");
    await pause(lateMs);
    return result;
  }
  const describeCall = (verb: string, claims: readonly Claim[]): string =>
    [verb, ...claims.map(({ locks }) => locks[0].key)].join(" ");
  const driver = delegate(store.direct(), {
    open: async (events) => {
      if (link.fault === "away") throw new Error("away");
      if (link.fault instanceof Error) throw link.fault;
      deliver = toOnPush(events);
      return memory().open(NO_EVENTS);
    },
    claim(claim) {
      const lateMs = isTokenClaim(claim) ? link.delayMs.ticket : link.delayMs.claim;
      return call(describeCall("claim", [claim]), lateMs, (member) => member.claim(claim));
    },
    renew: (claims) =>
      call(
        describeCall("renew", claims),
        claims.every(isTokenClaim) ? link.delayMs.ticket : link.delayMs.renew,
        (member) => member.renew(claims),
      ),
    release: (releases) =>
      call(
        describeCall(
          "release",
          releases.map(({ claim }) => claim),
        ),
        link.delayMs.release,
        (member) => member.release(releases),
      ),
    detach: (claims) =>
      call(describeCall("detach", claims), 0, async (member) => (await member.detach?.(claims)) ?? []),
    list: (query, options) => call("list", 0, (member) => member.list(query, options)),
    close: async () => {
      deliver = () => undefined;
    },
  });
  return { driver, link };
}

const isTokenClaim = ({ locks }: Claim): boolean => locks[0].key.includes("#");

/** @throws Error if it is not held */
export function expectHeld(answer: Answer | undefined): Extract<Answer, { state: "held" }> {
  if (answer?.state !== "held") throw new Error(`expected held, not ${answer?.state}`);
  return answer;
}

export const detachClaim = async ({ driver }: QuorumClient, claim: Claim): Promise<readonly boolean[]> =>
  (await driver.detach?.([claim])) ?? [];
