/** A majority of lock tables behind a bad network, in simulated time: everything follows from a seed. */

import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import type { Clock, Timer } from "../../../src/util/clock.ts";
import { NO_EVENTS, toDriverEvents, toOnPush } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";

/** The time after which a link's client abandons a call. */
const CALL_TIMEOUT_MS = 3_000;

/** One store. */
export interface SimulatedMember {
  store: MemoryStore;
  /** Counts its restarts: entries of an earlier run are forgotten. */
  epoch: number;
  /** Accepts no calls: silent, or refusing, permanently or not. */
  outage: "silent" | "refusing" | "fatal" | null;
  /** Claims finally released there, by run and id. */
  readonly released: Map<string, number>;
  /** The longest delay of a message in each direction. */
  readonly maxDelayMs: number;
  /** A life of a clock of its own. */
  createStore(): MemoryStore;
  /** Sets its wall clock. */
  setWall(byMs: number): void;
}

export interface QuorumSimulation {
  readonly random: SeededRandom;
  readonly clock: FakeClock;
  readonly members: readonly SimulatedMember[];
  readonly ttlMs: number;
  /** The probability that a message is lost while there are faults. */
  readonly lossRate: number;
  /** Members come back empty; else their wall clocks are set. Not both, or tokens would have no base to rise from. */
  readonly losesState: boolean;
  isQuiet: boolean;
  /** Finally released claims. */
  readonly releasedClaims: Set<ClaimId>;
  /** Of these, entries that were made after the release, and stayed. */
  readonly strayClaims: string[];
  delay(ms: number): Promise<void>;
  /** A clock whose rate differs by up to half a per cent from true time. */
  createDriftingClock(): Clock;
}

export function createSimulation(seed: number): QuorumSimulation {
  const random = seededRandom(seed);
  const clock = new FakeClock();
  const createDriftingClock = (): DriftingClock =>
    driftingClock(clock, 0.995 + random.next() * 0.01, (random.next() - 0.5) * 500);
  const members = random.chance(0.7) ? 3 : 5;
  const slowMember = random.chance(0.4) ? random.int(members) : -1;
  const simulatedMembers = Array.from({ length: members }, (_, index): SimulatedMember => {
    const memberClock = createDriftingClock();
    const createStore = (): MemoryStore => memoryStore(memberClock);
    const { setWall } = memberClock;
    return {
      store: createStore(),
      epoch: 1,
      outage: null,
      released: new Map(),
      maxDelayMs: index === slowMember ? 400 : 3,
      createStore,
      setWall,
    };
  });
  return {
    random,
    clock,
    members: simulatedMembers,
    ttlMs: 1_000 + random.int(2_000),
    lossRate: random.chance(0.5) ? 0.03 : 0,
    losesState: random.chance(0.6),
    isQuiet: false,
    releasedClaims: new Set(),
    strayClaims: [],
    delay: (ms) => delayUntil(clock, ms),
    createDriftingClock,
  };
}

/** One client's driver of one member, across the network. `cut`: nothing passes. */
export function connectMember(simulation: QuorumSimulation, member: SimulatedMember, isCut: () => boolean): Driver {
  const random = simulation.random.fork();
  let sink: ReturnType<typeof toOnPush> = () => undefined;
  let runNumber = 0;
  let inner = memory({ store: member.store });

  /** Occasionally very late, but not where only the order in time is left to check. */
  function networkDelay(): Promise<void> {
    const longest = !simulation.isQuiet && random.chance(0.02) ? simulation.ttlMs : member.maxDelayMs;
    return simulation.delay(random.next() * longest);
  }

  const isLost = (): boolean =>
    isCut() || member.outage === "silent" || (!simulation.isQuiet && random.chance(simulation.lossRate));

  /** The driver of the client's present run; its pushes are delayed, and may be lost. */
  async function currentDriver(): Promise<Driver> {
    if (runNumber === member.epoch) return inner;
    runNumber = member.epoch;
    inner = memory({ store: member.store });
    const boundEpoch = runNumber;
    await inner.open(
      toDriverEvents((id, answer) => {
        void networkDelay().then(() => {
          if (boundEpoch !== member.epoch || isLost() || member.outage !== null) return;
          if (answer === undefined || random.chance(0.1)) sink(id);
          else sink(id, answer);
        });
      }),
    );
    return inner;
  }

  async function call<T>(operation: (driver: Driver) => Promise<T>): Promise<T> {
    const neverAnswer = async (): Promise<never> => {
      await simulation.delay(CALL_TIMEOUT_MS);
      throw new Error("no answer");
    };
    await networkDelay();
    if (member.outage === "refusing") throw new Error("refused");
    if (member.outage === "fatal") throw new StoreRefusedError("refused for good");
    if (isLost()) {
      // it may arrive very late, while the store still knows the claim
      if (random.chance(0.3)) callLate(operation);
      return neverAnswer();
    }
    const startedEpoch = member.epoch;
    const answer = await operation(await currentDriver());
    await networkDelay();
    if (startedEpoch !== member.epoch || isLost()) return neverAnswer();
    return answer;
  }

  function callLate<T>(operation: (driver: Driver) => Promise<T>): void {
    const startedEpoch = member.epoch;
    void simulation.delay(random.next() * simulation.ttlMs * 0.8).then(async () => {
      if (member.outage === null && member.epoch === startedEpoch) await operation(await currentDriver());
    });
  }

  async function placeClaim(driver: Driver, claim: Claim): Promise<Answer> {
    const { store } = member;
    const releasedAt = member.released.get(`${member.epoch} ${claim.id}`);
    // a store remembers for a ttl that a claim may still arrive
    const isLate = releasedAt !== undefined && simulation.clock.now() - releasedAt < 0.98 * simulation.ttlMs;
    const answer = await driver.claim(claim);
    if (!isLate || answer.state === "none") return answer;
    // the client that attached it may still use it, and ends it when it asks
    void simulation.delay(0.6 * simulation.ttlMs).then(() => {
      if (tableOf(store).records.get(claim.id) !== undefined) simulation.strayClaims.push(claim.locks[0].key);
    });
    return answer;
  }

  return delegate(inner, {
    async open(events) {
      if (member.outage !== null || isCut()) throw new Error("not reached");
      sink = toOnPush(events);
      return memory().open(NO_EVENTS);
    },
    claim: (claim) => call((driver) => placeClaim(driver, claim)),
    async renew(claims) {
      const answers = await call((driver) => driver.renew(claims));
      // a part of the member had failed
      return answers.map((answer) => (!simulation.isQuiet && random.chance(0.02) ? undefined : answer));
    },
    release: (releases) =>
      call((driver) => {
        for (const { claim } of releases)
          if (simulation.releasedClaims.has(claim.id))
            member.released.set(`${member.epoch} ${claim.id}`, simulation.clock.now());
        return driver.release(releases);
      }),
    detach: (claims) => call(async (driver) => (await driver.detach?.(claims)) ?? []),
    list: (query, options) => call((driver) => driver.list(query, options)),
    async close() {
      sink = () => undefined;
    },
  });
}

function delayUntil(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.timer(resolve).set(clock.now() + ms));
}

interface DriftingClock extends Clock {
  setWall(byMs: number): void;
}

function driftingClock(clock: FakeClock, rate: number, startMs: number): DriftingClock {
  let aheadMs = startMs;
  return {
    setWall(byMs) {
      aheadMs += byMs;
    },
    now: () => clock.now() * rate,
    wall: () => clock.wall() + aheadMs,
    uptime: () => clock.uptime() * rate,
    timer(run): Timer {
      const timer = clock.timer(run);
      return {
        ...timer, // never a rounding early: a caller that finds nothing due yet sets it again
        set: (due) => timer.set(due === null ? null : due / rate + 1e-6),
      };
    },
  };
}
