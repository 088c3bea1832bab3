/** All implementations on Redis, by name. */

import type { LocksOptions } from "../../src/index.ts";
import type { HoldKey, LockImplementation } from "../harness/closed-loop.ts";
import { CACHED } from "./cached.ts";

export interface RedisImplementation {
  /** @param address of the Redis */
  open(address: string): Promise<LockImplementation>;
  /** The commands it sends itself: Redis counts those that scripts call by the same names, and no other may be both. */
  readonly countedCommands: readonly string[];
  /** For locks that are prolonged by themselves; undefined: it has none. */
  holdLocks?(address: string, ttl: number): Promise<HoldKey>;
}

// loaded only where they are needed: other cases' processes do without them
const loadHoldfast = (): Promise<typeof import("./redis-holdfast.ts")> => import("./redis-holdfast.ts");
const loadThirdParty = (): Promise<typeof import("./redis-third-party.ts")> => import("./redis-third-party.ts");
const loadDirect = (): Promise<typeof import("./redis-direct-hand-off.ts")> => import("./redis-direct-hand-off.ts");

const EVAL_COMMANDS = ["eval", "evalsha"];
const SET_COMMANDS = [...EVAL_COMMANDS, "set"];
const PIPELINED = { enableAutoPipelining: true };

export const BASELINE = "two EVALSHA";
export const BY_HAND = "SET NX PX by hand";
/** Two scripts and a PUBLISH: the floor of strict order. */
export const DIRECT_HAND_OFF = "plain direct hand-off";
export const HOLDFAST = "holdfast, Redis";
export const HOLDFAST_STRICT = "holdfast, Redis, strict order";
export const HOLDFAST_CACHED = "holdfast, Redis, cached";
export const HOLDFAST_LOSSY = "holdfast, Redis, cached, half of the pushes lost";
export const REDIS_SEMAPHORE = "redis-semaphore";
export const SIMPLE_REDIS_MUTEX = "simple-redis-mutex";
export const REDLOCK_4 = "redlock 4";
export const REDLOCK_BETA = "redlock 5 beta";
export const VERROU = "@verrou/core";
/** It has a broker of its own instead of Redis. */
export const BROKER = "live-mutex";

/** For the descriptions of the cases. */
export const REDIS_METHOD =
  "All on the same Redis, each with ioredis 6 (simple-redis-mutex with node-redis 6), the rivals with their own delays " +
  "between attempts and as many attempts as it takes.";

function redlock5Implementation(name: string): RedisImplementation {
  return {
    open: async (address) => (await loadThirdParty()).openRedlock5(name, address),
    countedCommands: EVAL_COMMANDS,
    holdLocks: async (address, ttl) => (await loadThirdParty()).holdRedlock5(name, address, ttl),
  };
}

export const REDIS_THIRD_PARTIES: Readonly<Record<string, RedisImplementation>> = {
  [REDLOCK_4]: {
    open: async (address) => (await loadThirdParty()).openRedlock4(address),
    countedCommands: EVAL_COMMANDS,
  },
  [REDLOCK_BETA]: redlock5Implementation("redlock5"),
  "@sesamecare-oss/redlock": redlock5Implementation("@sesamecare-oss/redlock"),
  [REDIS_SEMAPHORE]: {
    open: async (address) => (await loadThirdParty()).openRedisSemaphore(address),
    countedCommands: SET_COMMANDS,
    holdLocks: async (address, ttl) => (await loadThirdParty()).holdRedisSemaphore(address, ttl),
  },
  [VERROU]: {
    open: async (address) => (await loadThirdParty()).openVerrou(address),
    countedCommands: SET_COMMANDS,
  },
  "redlock-universal": {
    open: async (address) => (await loadThirdParty()).openUniversal(address),
    countedCommands: SET_COMMANDS,
    holdLocks: async (address, ttl) => (await loadThirdParty()).holdUniversal(address, ttl),
  },
  [SIMPLE_REDIS_MUTEX]: {
    open: async (address) => (await loadThirdParty()).openSimpleRedisMutex(address),
    countedCommands: [...SET_COMMANDS, "incr"],
  },
};

function holdfastImplementation(options: LocksOptions, client?: typeof PIPELINED): RedisImplementation {
  return {
    open: async (address) => (await loadHoldfast()).openRedisHoldfast(address, options, client),
    countedCommands: EVAL_COMMANDS,
  };
}

export const REDIS_IMPLEMENTATIONS: Readonly<Record<string, RedisImplementation>> = {
  ...REDIS_THIRD_PARTIES,
  [BASELINE]: {
    open: async (address) => (await loadHoldfast()).openRedisBaseline(address),
    countedCommands: EVAL_COMMANDS,
  },
  [BY_HAND]: {
    open: async (address) => (await loadHoldfast()).openRedisByHand(address),
    countedCommands: SET_COMMANDS,
  },
  [DIRECT_HAND_OFF]: {
    open: async (address) => (await loadDirect()).openDirectHandOff(address),
    countedCommands: EVAL_COMMANDS,
  },
  [`${BASELINE}, auto-pipelined`]: {
    open: async (address) => (await loadHoldfast()).openRedisBaseline(address, PIPELINED),
    countedCommands: EVAL_COMMANDS,
  },
  [HOLDFAST]: {
    ...holdfastImplementation({}),
    holdLocks: async (address, ttl) => (await loadHoldfast()).holdRedisHoldfast(address, ttl),
  },
  [HOLDFAST_STRICT]: holdfastImplementation({ order: "strict" }),
  [HOLDFAST_CACHED]: holdfastImplementation(CACHED),
  [HOLDFAST_LOSSY]: {
    open: async (address) => (await loadHoldfast()).openRedisLossy(address, CACHED),
    countedCommands: EVAL_COMMANDS,
  },
  [`${HOLDFAST}, auto-pipelined`]: holdfastImplementation({}, PIPELINED),
  [`${HOLDFAST_STRICT}, auto-pipelined`]: holdfastImplementation({ order: "strict" }, PIPELINED),
};
