/** The faults of a torture: of its own workers, of the network between them and the store, and of a store that it started itself. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../testing/random.ts";
import type { Fault, Strike } from "./nemesis.ts";
import type { PlaceProxy } from "./place-proxy.ts";
import type { StartedStore, StoreFault } from "./stores/started-store.ts";
import { STORE_FAULTS } from "./stores/started-store.ts";
import type { RunningWorker, WorkerPool } from "./worker-pool.ts";

/** Faults of the workers, which need nothing of the store. */
const WORKER_FAULTS = ["kill", "pause", "block", "clock"] as const;
/** Faults of the connections, for which a proxy is needed. */
export const NETWORK_FAULTS = ["partition", "cut", "latency"] as const;

export type FaultName = (typeof WORKER_FAULTS)[number] | (typeof NETWORK_FAULTS)[number] | StoreFault;
export const FAULT_NAMES: readonly FaultName[] = [...WORKER_FAULTS, ...NETWORK_FAULTS, ...STORE_FAULTS];

/** What faults strike. */
export interface Targets {
  readonly workers: WorkerPool;
  /** The proxy of each place; empty: there is none. */
  readonly proxies: readonly PlaceProxy[];
  /** Null: the store belongs to the user. */
  readonly store: StartedStore | null;
  readonly ttlMs: number;
}

const HOUR_MS = 3_600_000;
const nothing = async (): Promise<void> => undefined;

export function createFault(name: FaultName, targets: Targets): Fault {
  const strike = STRIKES[name];
  return {
    name,
    prepare: (random, place) => letWorkersHold(name, targets, random, place),
    strike: (random, place) => strike(targets, random, place),
  };
}

/** A process that holds nothing, or what no other one wants, shows nothing when it is struck. The others are struck in the middle of anything. */
const HOLDER_CHANCE = 0.85;

/** The worker of this place holds locks for longer than a lease, so that it may lose them; for most faults the others do, too. */
async function letWorkersHold(
  name: FaultName,
  { workers, ttlMs }: Targets,
  random: Random,
  place: number,
): Promise<void> {
  if (!random.chance(HOLDER_CHANCE)) return;
  const holdMs = (): number => Math.round(ttlMs * (2.5 + 1.5 * random.next()));
  const victim = pickWorker(workers, random, place);
  if (victim === null) return;
  // what others still hold from an earlier fault would keep it from holding
  for (const worker of workers.candidates) workers.send(worker, { command: "hold", ms: 0 });
  await workers.holdLong(victim, holdMs(), ttlMs / 2);
  // the locks of one that is killed must be what the others want
  if (name !== "kill" && random.chance(0.75))
    for (const other of workers.candidates)
      if (other !== victim) workers.send(other, { command: "hold", ms: holdMs() });
  await delay(ttlMs / 20 + random.int(ttlMs / 5));
}

type StrikeFunction = (targets: Targets, random: Random, place: number) => Promise<Strike | null>;

const STRIKES: Readonly<Record<FaultName, StrikeFunction>> = {
  async kill({ workers, ttlMs }, random, place) {
    const victim = pickWorker(workers, random, place);
    if (victim === null) return null;
    workers.kill(victim);
    // until its leases have ended: one that strikes sooner often kills a process that only waits for them
    return { workers: [victim.worker], ms: ttlMs * (0.3 + 2.2 * random.next()), repair: nothing };
  },
  async pause({ workers, ttlMs }, random, place) {
    const victims = pickWorkers(workers, random, place);
    if (victims.length === 0) return null;
    for (const victim of victims) workers.stop(victim);
    return {
      workers: victims.map(({ worker }) => worker),
      ms: ttlMs * (0.3 + 2.2 * random.next()),
      repair: async () => {
        for (const victim of victims) workers.proceed(victim);
      },
    };
  },
  async block({ workers, ttlMs }, random, place) {
    const victim = pickWorker(workers, random, place);
    if (victim === null) return null;
    const ms = Math.round(ttlMs * (0.3 + 1.7 * random.next()));
    workers.send(victim, { command: "block", ms });
    return { workers: [victim.worker], ms, repair: nothing };
  },
  async clock({ workers }, random, place) {
    const victim = pickWorker(workers, random, place);
    if (victim === null) return null;
    const ms = random.pick([-HOUR_MS, -5_000, 5_000, HOUR_MS]);
    workers.send(victim, { command: "clock", ms });
    return { workers: [victim.worker], ms: 0, repair: nothing };
  },
  async partition({ workers, proxies, ttlMs }, random, place) {
    const places = pickPlaces(proxies, random, place);
    const cut = random.pick<"both" | "requests" | "answers">(["both", "requests", "requests", "requests", "answers"]);
    const struck = places.map((index) => proxies[index] as PlaceProxy);
    if (cut === "requests") {
      // the last answers arrive late: a lease that is counted from them is believed for too long
      const lateMs = ttlMs * (0.4 + 0.4 * random.next());
      for (const { toClient } of struck) toClient.delay(lateMs);
      await delay(lateMs);
    }
    for (const { toTarget } of struck) if (cut !== "answers") toTarget.pause();
    for (const { toClient } of struck) if (cut !== "requests") toClient.pause();
    return {
      workers: workers.at(places),
      // the store's leases end meanwhile
      ms: ttlMs * (cut === "requests" ? 1.1 + 1.4 * random.next() : 0.3 + 2.2 * random.next()),
      repair: async () => {
        for (const { toTarget, toClient } of struck) {
          toTarget.resume();
          toClient.resume();
          toClient.delay(0);
        }
      },
    };
  },
  async cut({ workers, proxies }, random, place) {
    const places = pickPlaces(proxies, random, place);
    for (const place of places) {
      const proxy = proxies[place] as PlaceProxy;
      // at once, or between a request and its answer
      if (random.chance(0.5)) proxy.reset();
      else proxy.toClient.cutAfter(1 + random.int(300));
    }
    return { workers: workers.at(places), ms: 0, repair: nothing };
  },
  async latency({ workers, proxies, ttlMs }, random, place) {
    const places = pickPlaces(proxies, random, place);
    const ms = 20 + random.int(ttlMs / 2);
    const slow = places.map((place) => (proxies[place] as PlaceProxy)[random.chance(0.5) ? "toTarget" : "toClient"]);
    for (const direction of slow) direction.delay(ms);
    return {
      workers: workers.at(places),
      ms: ttlMs * (0.5 + 2 * random.next()),
      repair: async () => {
        for (const direction of slow) direction.delay(0);
      },
    };
  },
  "store-kill": (targets, random) => strikeStore(targets, "store-kill", random, targets.ttlMs * random.next()),
  "store-restart": (targets, random) => strikeStore(targets, "store-restart", random, 0),
  "store-pause": (targets, random) =>
    strikeStore(targets, "store-pause", random, targets.ttlMs * (0.3 + 2 * random.next())),
  "store-fail-over": (targets, random) => strikeStore(targets, "store-fail-over", random, 0),
  "store-wipe": (targets, random) => strikeStore(targets, "store-wipe", random, targets.ttlMs * random.next()),
  "power-loss": (targets, random) => strikeStore(targets, "power-loss", random, targets.ttlMs * random.next()),
};

/** The one of this place, or else any. */
function pickWorker({ candidates }: WorkerPool, random: Random, place: number): RunningWorker | null {
  const atPlace = candidates.find((worker) => worker.place === place);
  if (atPlace !== undefined || candidates.length === 0) return atPlace ?? null;
  return random.pick(candidates as [RunningWorker, ...RunningWorker[]]);
}

/** Up to half of them, with that of this place: the others still want what these hold. */
function pickWorkers(workers: WorkerPool, random: Random, place: number): RunningWorker[] {
  const first = pickWorker(workers, random, place);
  if (first === null) return [];
  const others = workers.candidates.filter((worker) => worker !== first);
  return [first, ...others.slice(0, random.int(others.length / 2 + 1))];
}

/** This place, or all. */
function pickPlaces(proxies: readonly PlaceProxy[], random: Random, place: number): number[] {
  return random.chance(0.2) ? proxies.map((_, index) => index) : [place];
}

async function strikeStore(
  { store, workers }: Targets,
  fault: StoreFault,
  random: Random,
  ms: number,
): Promise<Strike | null> {
  if (store === null) return null;
  const isOfAll = fault === "power-loss" && store.isOnUsersMachine === true;
  const repair = isOfAll
    ? await workers.replaceAll((users) => store.inject(fault, random, users))
    : await store.inject(fault, random, []);
  return repair === null ? null : { workers: null, ms, repair };
}
