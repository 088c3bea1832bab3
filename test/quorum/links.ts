/** Several clients of one majority in simulated time, each by links of its own, which a test breaks in every way. */

import { delegate } from "../../src/conformance/delegate.ts";
import type { MemoryStore } from "../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import type { QuorumOptions } from "../../src/drivers/quorum/driver.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../src/spi/driver.ts";
import type { FakeClock } from "../support/fake-clock.ts";
import { fakeClock } from "../support/fake-clock.ts";

export const LATE_MS = 4_000;

/** What becomes of a client's calls to one member. */
export interface Link {
  /**
   * Null: all is well. "away": nothing arrives. "mute": what is done there is not heard of. "late": nor that, and it is done
   * LATE_MS later. "silent": nothing arrives, and nothing is ever said. An error: it is the answer.
   */
  trouble: null | "away" | "silent" | "mute" | "late" | Error;
  /** The trouble is with this verb alone; null: with all. */
  verb: "claim" | "release" | null;
  /** Replies take so long. */
  readonly lateMs: { claim: number; ticket: number; renew: number; release: number; push: number };
  /** What arrived there: "claim key". */
  readonly arrived: string[];
}

export interface Store {
  memory: MemoryStore;
  /** Without any of its links. */
  readonly direct: () => Driver;
  restartEmpty(): void;
}

export interface Joined {
  readonly driver: Driver;
  readonly links: readonly Link[];
  readonly pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
}

export interface Majority {
  readonly clock: FakeClock;
  readonly stores: readonly Store[];
  join(options?: QuorumOptions, before?: (links: readonly Link[]) => void): Promise<Joined>;
  /** Settles what is asked while time passes. */
  within<T>(ms: number, asked: Promise<T>): Promise<T>;
}

export function majority(count = 3): Majority {
  const clock = fakeClock();
  const stores = Array.from({ length: count }, (): Store => {
    const store: Store = {
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
    async join(options = {}, before) {
      const linked = stores.map((store) => linkTo(clock, store));
      const links = linked.map(({ link }) => link);
      before?.(links);
      const driver = quorum(
        linked.map((one) => one.driver),
        { clock, random: () => 0.5, ...options },
      );
      const pushes: Joined["pushes"] = [];
      await driver.open((id, answer) => pushes.push({ id, answer }));
      return { driver, links, pushes };
    },
    async within(ms, asked) {
      const settled = Promise.allSettled([asked]);
      await clock.pass(ms);
      const [result] = await settled;
      if (result.status === "rejected") throw result.reason;
      return result.value;
    },
  };
}

function linkTo(clock: FakeClock, store: Store): { readonly driver: Driver; readonly link: Link } {
  const link: Link = {
    trouble: null,
    verb: null,
    lateMs: { claim: 0, ticket: 0, renew: 0, release: 0, push: 0 },
    arrived: [],
  };
  const pause = (ms: number): Promise<void> =>
    ms === 0 ? Promise.resolve() : new Promise((done) => clock.timer(done).set(clock.now() + ms));
  let sink: (id: ClaimId | null, answer?: Answer) => void = () => undefined;
  let life: MemoryStore | null = null;
  let inner: Driver;
  const there = async (): Promise<Driver> => {
    if (life === store.memory) return inner;
    life = store.memory;
    inner = store.direct();
    await inner.open((id, answer) => void pause(link.lateMs.push).then(() => sink(id, answer)));
    return inner;
  };
  async function call<T>(what: string, lateMs: number, work: (driver: Driver) => Promise<T>): Promise<T> {
    const trouble = link.verb === null || what.startsWith(link.verb) ? link.trouble : null;
    if (trouble === "away") throw new Error("away");
    if (trouble instanceof Error) throw trouble;
    if (trouble === "silent") return new Promise(() => undefined);
    if (trouble === "late") {
      void pause(LATE_MS).then(async () => work(await there()));
      throw new Error("no answer yet");
    }
    link.arrived.push(what);
    const result = await work(await there());
    if (trouble === "mute") throw new Error("no answer");
    await pause(lateMs);
    return result;
  }
  const named = (verb: string, claims: readonly Claim[]): string =>
    [verb, ...claims.map(({ holds }) => holds[0].key)].join(" ");
  const driver = delegate(store.direct(), {
    open: async (notify) => {
      if (link.trouble === "away") throw new Error("away");
      if (link.trouble instanceof Error) throw link.trouble;
      sink = notify;
    },
    claim(claim) {
      const lateMs = isTicket(claim) ? link.lateMs.ticket : link.lateMs.claim;
      return call(named("claim", [claim]), lateMs, (to) => to.claim(claim));
    },
    renew: (claims) =>
      call(named("renew", claims), claims.every(isTicket) ? link.lateMs.ticket : link.lateMs.renew, (to) =>
        to.renew(claims),
      ),
    release: (claims, unanswered) =>
      call(named("release", claims), link.lateMs.release, (to) => to.release(claims, unanswered)),
    detach: (claims) => call(named("detach", claims), 0, async (to) => (await to.detach?.(claims)) ?? []),
    list: (filter, max, after) => call("list", 0, (to) => to.list(filter, max, after)),
    close: async () => {
      sink = () => undefined;
    },
  });
  return { driver, link };
}

const isTicket = ({ holds }: Claim): boolean => holds[0].key.includes("#");

/** @throws Error if it is not held */
export function held(answer: Answer | undefined): Extract<Answer, { state: "held" }> {
  if (answer?.state !== "held") throw new Error(`expected held, not ${answer?.state}`);
  return answer;
}
