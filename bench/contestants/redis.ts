/** Everybody who takes part on Redis, by name. */

import type { LocksOptions } from "../../src/index.ts";
import type { Contestant } from "../harness/workload.ts";
import type { Keep } from "./redis-rivals.ts";

export interface RedisEntrant {
  /** @param address of the Redis */
  open(address: string): Promise<Contestant>;
  /** The commands it sends itself: Redis counts those that scripts call by the same names, and no other may be both. */
  readonly sends: readonly string[];
  /** For locks that are prolonged by themselves; undefined: it has none. */
  keeper?(address: string, ttl: number): Promise<Keep>;
}

// loaded only where they are needed: other cases' processes do without them
const ours = (): Promise<typeof import("./redis-ours.ts")> => import("./redis-ours.ts");
const rivals = (): Promise<typeof import("./redis-rivals.ts")> => import("./redis-rivals.ts");

const EVAL = ["eval", "evalsha"];
const SET = [...EVAL, "set"];
const PIPELINED = { enableAutoPipelining: true };

export const FLOOR = "two EVALSHA";
export const OURS = "holdfast, Redis";
export const STRICT = "holdfast, Redis, handoffs 1";
export const SEMAPHORE = "redis-semaphore";
export const SIMPLE = "simple-redis-mutex";
export const BETA = "redlock 5 beta";

function redlock5(name: string): RedisEntrant {
  return {
    open: async (address) => (await rivals()).openRedlock5(name, address),
    sends: EVAL,
    keeper: async (address, ttl) => (await rivals()).keeperRedlock5(name, address, ttl),
  };
}

export const REDIS_RIVALS: Readonly<Record<string, RedisEntrant>> = {
  "redlock 4": { open: async (address) => (await rivals()).openRedlock4(address), sends: EVAL },
  [BETA]: redlock5("redlock5"),
  "@sesamecare-oss/redlock": redlock5("@sesamecare-oss/redlock"),
  [SEMAPHORE]: {
    open: async (address) => (await rivals()).openRedisSemaphore(address),
    sends: SET,
    keeper: async (address, ttl) => (await rivals()).keeperRedisSemaphore(address, ttl),
  },
  "@verrou/core": { open: async (address) => (await rivals()).openVerrou(address), sends: SET },
  "redlock-universal": {
    open: async (address) => (await rivals()).openUniversal(address),
    sends: SET,
    keeper: async (address, ttl) => (await rivals()).keeperUniversal(address, ttl),
  },
  [SIMPLE]: { open: async (address) => (await rivals()).openSimpleRedisMutex(address), sends: [...SET, "incr"] },
};

function holdfast(options: LocksOptions, client?: typeof PIPELINED): RedisEntrant {
  return { open: async (address) => (await ours()).openOurs(address, options, client), sends: EVAL };
}

export const REDIS_ENTRANTS: Readonly<Record<string, RedisEntrant>> = {
  ...REDIS_RIVALS,
  [FLOOR]: { open: async (address) => (await ours()).openFloor(address), sends: EVAL },
  [`${FLOOR}, auto-pipelined`]: { open: async (address) => (await ours()).openFloor(address, PIPELINED), sends: EVAL },
  [OURS]: { ...holdfast({}), keeper: async (address, ttl) => (await ours()).keeperOurs(address, ttl) },
  [STRICT]: holdfast({ handoffs: 1 }),
  [`${OURS}, auto-pipelined`]: holdfast({}, PIPELINED),
  [`${STRICT}, auto-pipelined`]: holdfast({ handoffs: 1 }, PIPELINED),
};
