/** What one seed plays: how many clients on how few keys, in which weather, with which mishaps. */

import type { SeededRandom } from "../support/seeded-random.ts";
import type { Weather } from "./network.ts";
import { FAIR } from "./network.ts";

export interface Plan {
  /** table: core/table behind calls that may be lost or repeated. unix, tcp: the real server, over streams. */
  readonly store: "table" | "unix" | "tcp";
  readonly clients: number;
  /** Requests each client has under way at once. */
  readonly actors: number;
  readonly keys: readonly string[];
  readonly ttlMs: number;
  /** The length of a session, where the store has sessions. */
  readonly sessionMs: number;
  /** How long there is trouble; afterwards everything must come to rest. */
  readonly troubleMs: number;
  readonly handoffs: number;
  readonly handoffMs: number;
  readonly maxHoldMs: number | null;
  /** false: holders let their leases run out. */
  readonly renew: boolean;
  readonly weather: Weather;
  /** Clock rates lie within 1 plus or minus this. Two of them differ by at most 1 %. */
  readonly drift: number;
  /** Mishaps in the time of trouble. */
  readonly mishaps: number;
  readonly kinds: readonly Mishap[];
  /** Some use using(), and ask again inside. */
  readonly reenters: boolean;
  /** The server keeps no state: every start of it reclaims. */
  readonly stateless: boolean;
}

export type Mishap =
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

const WEATHERS: readonly ((random: SeededRandom, ttlMs: number) => Weather)[] = [
  () => FAIR,
  (random) => ({ ...FAIR, usualMs: 1 + random.int(40) }),
  (random, ttlMs) => ({ ...FAIR, slow: 0.1, slowMs: ttlMs * 0.7, repeated: 0.05 * random.int(3) }),
  (random, ttlMs) => ({ ...FAIR, lost: 0.02 * random.int(8), slow: 0.1, slowMs: ttlMs * 0.3, repeated: 0.1 }),
  (_, ttlMs) => ({ ...FAIR, lost: 0.3, slow: 0.2, slowMs: ttlMs * 0.7, repeated: 0.1 }),
];

/** Longer than the lease a server must wait for without having been told, and still a short one. */
const LONG_MS = 55_000;

/** How long a server without a state reclaims at each start. */
const RECLAIM_MS = 60_000;

/** Streams lose nothing. */
const STREAM_WEATHERS: readonly ((random: SeededRandom, ttlMs: number) => Weather)[] = [
  () => ({ ...FAIR, usualMs: 0.5 }),
  (random) => ({ ...FAIR, usualMs: 1 + random.int(20) }),
  () => ({ ...FAIR, slow: 0.05, slowMs: 150 }),
];

const KINDS: Readonly<Record<Plan["store"], readonly (readonly Mishap[])[]>> = {
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

/** Must every lock outlive the mishaps? The server comes back within a fraction of the lease, and nothing else happens. */
export function keepsLocks({ store, kinds, ttlMs, mishaps, renew, maxHoldMs }: Plan): boolean {
  if (store === "table" || ttlMs < 10_000 || mishaps > 3 || !renew || maxHoldMs !== null) return false;
  return kinds.every((kind) => kind === "crash" || kind === "restart");
}

/** Is it about what becomes of a lock towards the end of its lease? Then users hold it for long. */
export function mattersAtTheEnd(plan: Plan): boolean {
  return !plan.renew || plan.kinds.includes("partition") || keepsLocks(plan);
}

export function planOf(random: SeededRandom, extras: SeededRandom | null): Plan {
  const plan = plainPlan(random);
  if (extras === null) return plan;
  const reenters = extras.chance(0.4);
  // with leases that it takes, and not so short that a start lasts for a hundred of them
  const stateless = plan.store !== "table" && plan.ttlMs === 10_000 && extras.chance(0.5);
  return { ...plan, reenters, stateless, troubleMs: plan.troubleMs + (stateless ? 2 * RECLAIM_MS : 0) };
}

function plainPlan(random: SeededRandom): Plan {
  const store = random.pick(["table", "table", "unix", "tcp"] as const);
  const ttlMs = random.pick(store === "table" ? [600, 1_000, 3_000] : [1_000, 3_000, 10_000, LONG_MS]);
  const renew = random.chance(0.8);
  // slow answers are where a lease's end is mistaken
  const weathers = store !== "table" ? STREAM_WEATHERS : renew ? WEATHERS : WEATHERS.slice(2, 3);
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
    kinds: store === "tcp" && ttlMs === LONG_MS && random.chance(0.7) ? ["partition"] : random.pick(KINDS[store]),
    reenters: false,
    stateless: false,
  };
}
