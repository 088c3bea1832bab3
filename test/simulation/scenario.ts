/** The scenario of one seed: how many clients on how few keys, with which network and which faults. */

import type { Traits } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { NetworkConditions } from "./simulated-network.ts";
import { GOOD_CONDITIONS } from "./simulated-network.ts";

export interface Scenario {
  /** table: the lock table behind calls that may be lost or repeated. unix, tcp: the real server, over streams. */
  readonly store: "table" | "unix" | "tcp";
  readonly clients: number;
  /** Requests each client has in flight at once. */
  readonly actors: number;
  readonly keys: readonly string[];
  readonly ttlMs: number;
  /** The length of a session, where the store has sessions. */
  readonly sessionMs: number;
  /** The duration of faults; afterwards everything must settle. */
  readonly troubleMs: number;
  readonly handoffs: number;
  readonly handoffMs: number;
  readonly maxHoldMs: number | null;
  /** false: holders let their leases expire. */
  readonly renew: boolean;
  readonly weather: NetworkConditions;
  /** Clock rates lie within 1 plus or minus this. Two of them differ by at most 1 %. */
  readonly drift: number;
  /** Faults in that time. */
  readonly mishaps: number;
  readonly kinds: readonly Fault[];
  /** Some use using(), and request again inside. */
  readonly reenters: boolean;
  /** The server keeps no state: every start of it begins with a recovery. */
  readonly stateless: boolean;
  /** How the store recalls claims. */
  readonly recall: Traits["recall"];
  /** How long clients keep locks that they do not use; 0: not at all. */
  readonly cacheMs: number;
}

export type Fault =
  | "pause"
  | "sleep"
  | "kill"
  | "cut"
  | "reset"
  | "storePause"
  | "wall"
  | "revoke"
  | "redeploy"
  | "crash"
  | "power"
  | "restart"
  | "partition";

const NETWORK_CONDITIONS: readonly ((random: SeededRandom, ttlMs: number) => NetworkConditions)[] = [
  () => GOOD_CONDITIONS,
  (random) => ({ ...GOOD_CONDITIONS, usualMs: 1 + random.int(40) }),
  (random, ttlMs) => ({ ...GOOD_CONDITIONS, slow: 0.1, slowMs: ttlMs * 0.7, repeated: 0.05 * random.int(3) }),
  (random, ttlMs) => ({
    ...GOOD_CONDITIONS,
    lost: 0.02 * random.int(8),
    slow: 0.1,
    slowMs: ttlMs * 0.3,
    repeated: 0.1,
  }),
  (_, ttlMs) => ({ ...GOOD_CONDITIONS, lost: 0.3, slow: 0.2, slowMs: ttlMs * 0.7, repeated: 0.1 }),
];

/** Longer than the lease a server must wait for without a report, and still short. */
const LONG_MS = 55_000;

/** The length of the recovery of a server without a state, at each start. */
const RECOVERY_MS = 60_000;

/** Streams lose nothing. */
const STREAM_CONDITIONS: readonly ((random: SeededRandom, ttlMs: number) => NetworkConditions)[] = [
  () => ({ ...GOOD_CONDITIONS, usualMs: 0.5 }),
  (random) => ({ ...GOOD_CONDITIONS, usualMs: 1 + random.int(20) }),
  () => ({ ...GOOD_CONDITIONS, slow: 0.05, slowMs: 150 }),
];

const FAULT_SETS: Readonly<Record<Scenario["store"], readonly (readonly Fault[])[]>> = {
  table: [
    ["pause"],
    ["kill", "redeploy"],
    ["cut", "storePause"],
    ["sleep", "wall"],
    ["pause", "sleep", "kill", "cut", "storePause", "wall", "revoke", "redeploy"],
    ["pause", "revoke"],
  ],
  unix: [
    ["crash"],
    ["restart"],
    ["crash", "restart", "kill", "pause", "storePause"],
    ["kill", "pause", "redeploy", "revoke"],
  ],
  tcp: [
    ["crash", "cut"],
    ["restart", "cut", "reset"],
    ["power", "cut", "pause"],
    ["crash", "power", "restart", "kill", "pause", "sleep", "storePause", "wall", "redeploy", "revoke", "cut", "reset"],
    ["reset", "cut", "pause"],
  ],
};

/** Must every lock outlive the faults? The server comes back within a fraction of the lease, and nothing else happens. */
export function mustKeepLocks({ store, kinds, ttlMs, mishaps, renew, maxHoldMs }: Scenario): boolean {
  if (store === "table" || ttlMs < 10_000 || mishaps > 3 || !renew || maxHoldMs !== null) return false;
  return kinds.every((kind) => kind === "crash" || kind === "restart");
}

/** Is the scenario about the end of a lease? Then users hold locks for long. */
export function testsLeaseEnd(plan: Scenario): boolean {
  return !plan.renew || plan.kinds.includes("partition") || mustKeepLocks(plan);
}

export function generateScenario(
  random: SeededRandom,
  extras: SeededRandom | null,
  recalls: SeededRandom | null,
): Scenario {
  const scenario = addRecall(generateBaseScenario(random), recalls);
  if (extras === null) return scenario;
  const reenters = extras.chance(0.4);
  // with leases that it takes, and not so short that a start lasts for a hundred of them
  const stateless = scenario.store !== "table" && scenario.ttlMs === 10_000 && extras.chance(0.5);
  return { ...scenario, reenters, stateless, troubleMs: scenario.troubleMs + (stateless ? 2 * RECOVERY_MS : 0) };
}

function addRecall(scenario: Scenario, recalls: SeededRandom | null): Scenario {
  if (recalls === null) return scenario;
  const { store, handoffs, renew, ttlMs } = scenario;
  const recall = store === "table" ? recalls.pick(["push", "push", "push", "recheck", false] as const) : "push";
  const isCacheable = recall !== false && handoffs > 1 && renew;
  return { ...scenario, recall, cacheMs: isCacheable ? recalls.pick([0, ttlMs * 0.2, ttlMs * 5]) : 0 };
}

function generateBaseScenario(random: SeededRandom): Scenario {
  const store = random.pick(["table", "table", "unix", "tcp"] as const);
  const ttlMs = random.pick(store === "table" ? [600, 1_000, 3_000] : [1_000, 3_000, 10_000, LONG_MS]);
  const renew = random.chance(0.8);
  // slow answers are where a lease's end is mistaken
  const weathers = store !== "table" ? STREAM_CONDITIONS : renew ? NETWORK_CONDITIONS : NETWORK_CONDITIONS.slice(2, 3);
  return {
    store,
    clients: 2 + random.int(3),
    actors: 1 + random.int(4),
    keys: random.pick([["a"], ["a", "b"], ["a", "b", "c"]]),
    ttlMs,
    sessionMs: random.pick([3_000, 30_000]),
    troubleMs: ttlMs * (3 + random.int(4)),
    handoffs: random.pick([1, 1, 3, 64]),
    handoffMs: random.pick([10, 100, 10_000]),
    maxHoldMs: random.chance(0.2) ? ttlMs * 0.5 : null,
    renew,
    weather: random.pick(weathers)(random, ttlMs),
    drift: random.pick([0, 0.005]),
    mishaps: random.int(7),
    // where the longest lease counts, those who cannot come back in time do
    kinds: store === "tcp" && ttlMs === LONG_MS && random.chance(0.7) ? ["partition"] : random.pick(FAULT_SETS[store]),
    reenters: false,
    stateless: false,
    recall: false,
    cacheMs: 0,
  };
}
