/** The faults of a torture: of its own workers, of the network between them and the store, and of a store that it started itself. */

import type { Random } from "../testing/random.ts";
import type { Fault, Strike } from "./nemesis.ts";
import type { StartedStore } from "./stores/started-store.ts";
import type { TcpProxy } from "./tcp-proxy.ts";
import type { RunningWorker, WorkerPool } from "./worker-pool.ts";

/** Faults of the workers, which need nothing of the store. */
const WORKER_FAULTS = ["kill", "pause", "block", "clock"] as const;
/** Faults of the connections, for which a proxy is needed. */
export const NETWORK_FAULTS = ["partition", "cut", "latency"] as const;
/** Faults of a store that torture has started. */
export const STORE_FAULTS = ["store-kill", "store-restart", "store-pause"] as const;

export type FaultName =
  | (typeof WORKER_FAULTS)[number]
  | (typeof NETWORK_FAULTS)[number]
  | (typeof STORE_FAULTS)[number];
export const FAULT_NAMES: readonly FaultName[] = [...WORKER_FAULTS, ...NETWORK_FAULTS, ...STORE_FAULTS];

/** What faults strike. */
export interface Targets {
  readonly workers: WorkerPool;
  /** The proxy of each place; empty: there is none. */
  readonly proxies: readonly TcpProxy[];
  /** Null: the store belongs to the user. */
  readonly store: StartedStore | null;
  readonly ttlMs: number;
}

const HOUR_MS = 3_600_000;
const nothing = async (): Promise<void> => undefined;

export function createFault(name: FaultName, targets: Targets): Fault {
  const strike = STRIKES[name];
  return { name, strike: (random) => strike(targets, random) };
}

const STRIKES: Readonly<Record<FaultName, (targets: Targets, random: Random) => Promise<Strike | null>>> = {
  async kill({ workers }, random) {
    const victim = pickWorker(workers, random);
    if (victim === null) return null;
    workers.kill(victim);
    return { workers: [victim.worker], ms: 0, repair: nothing };
  },
  async pause({ workers, ttlMs }, random) {
    const victim = pickWorker(workers, random);
    if (victim === null) return null;
    workers.stop(victim);
    return {
      workers: [victim.worker],
      ms: ttlMs * (0.3 + 2.2 * random.next()),
      repair: async () => workers.proceed(victim),
    };
  },
  async block({ workers, ttlMs }, random) {
    const victim = pickWorker(workers, random);
    if (victim === null) return null;
    const ms = Math.round(ttlMs * (0.3 + 1.7 * random.next()));
    workers.send(victim, { command: "block", ms });
    return { workers: [victim.worker], ms, repair: nothing };
  },
  async clock({ workers }, random) {
    const victim = pickWorker(workers, random);
    if (victim === null) return null;
    const ms = random.pick([-HOUR_MS, -5_000, 5_000, HOUR_MS]);
    workers.send(victim, { command: "clock", ms });
    return { workers: [victim.worker], ms: 0, repair: nothing };
  },
  async partition({ workers, proxies, ttlMs }, random) {
    const places = pickPlaces(proxies, random);
    const directions = random.pick<readonly ("toTarget" | "toClient")[]>([
      ["toTarget", "toClient"],
      ["toTarget"],
      ["toClient"],
    ]);
    const paused = places.flatMap((place) => directions.map((direction) => (proxies[place] as TcpProxy)[direction]));
    for (const direction of paused) direction.pause();
    return {
      workers: workers.at(places),
      ms: ttlMs * (0.3 + 2.2 * random.next()),
      repair: async () => {
        for (const direction of paused) direction.resume();
      },
    };
  },
  async cut({ workers, proxies }, random) {
    const places = pickPlaces(proxies, random);
    for (const place of places) {
      const proxy = proxies[place] as TcpProxy;
      // at once, or between a request and its answer
      if (random.chance(0.5)) proxy.reset();
      else proxy.toClient.cutAfter(1 + random.int(300));
    }
    return { workers: workers.at(places), ms: 0, repair: nothing };
  },
  async latency({ workers, proxies, ttlMs }, random) {
    const places = pickPlaces(proxies, random);
    const ms = 20 + random.int(ttlMs / 2);
    const slow = places.map((place) => (proxies[place] as TcpProxy)[random.chance(0.5) ? "toTarget" : "toClient"]);
    for (const direction of slow) direction.delay(ms);
    return {
      workers: workers.at(places),
      ms: ttlMs * (0.5 + 2 * random.next()),
      repair: async () => {
        for (const direction of slow) direction.delay(0);
      },
    };
  },
  "store-kill": ({ store, ttlMs }, random) => strikeStore(store, "kill", ttlMs * random.next()),
  "store-restart": ({ store }) => strikeStore(store, "restart", 0),
  "store-pause": ({ store, ttlMs }, random) => strikeStore(store, "pause", ttlMs * (0.3 + 2 * random.next())),
};

function pickWorker(workers: WorkerPool, random: Random): RunningWorker | null {
  const { candidates } = workers;
  return candidates.length === 0 ? null : random.pick(candidates as [RunningWorker, ...RunningWorker[]]);
}

/** One place, or all. */
function pickPlaces(proxies: readonly TcpProxy[], random: Random): number[] {
  const all = proxies.map((_, place) => place);
  return random.chance(0.3) ? all : [random.int(proxies.length)];
}

async function strikeStore(
  store: StartedStore | null,
  fault: "kill" | "restart" | "pause",
  ms: number,
): Promise<Strike | null> {
  const repair = (await store?.inject(fault)) ?? null;
  return repair === null ? null : { workers: null, ms, repair };
}
