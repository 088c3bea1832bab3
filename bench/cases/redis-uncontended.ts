/** Holdfast on Redis against the floor and the rivals, where no caller waits for another one. */

import type { BenchCase, Check } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { measureOnRedis } from "../harness/redis-rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column, StoreRounds } from "../harness/store-rounds.ts";
import {
  bestRates,
  clientCpuPerGrant,
  figurePerRound,
  grantRates,
  serverCpuPerGrant,
  storeRow,
} from "../harness/store-rounds.ts";
import { BASELINE, BROKER, HOLDFAST, REDIS_METHOD, REDIS_THIRD_PARTIES } from "../implementations/redis.ts";

const THIRD_PARTIES: readonly string[] = Object.keys(REDIS_THIRD_PARTIES);
const NAMES = [HOLDFAST, BASELINE, ...THIRD_PARTIES, BROKER];
/** Inside the scripts, a pair. */
const MAX_COMMANDS = 8;
/** Holdfast and the rivals alike: V8 compiles during the first seconds. */
const WARM_UP_MS = 3_000;

const SERIAL_COLUMNS: readonly Column[] = ["rate", "p50", "p99", "commands", "inside", "clientCpu", "serverCpu"];
const MANY_KEYS_COLUMNS: readonly Column[] = ["rate", "commands", "inside", "clientCpu", "serverCpu"];

export const redisUncontended: BenchCase = {
  name: "redis-alone",
  title: "Redis, one caller, uncontended",
  about: `One caller, one key, in a loop; a pair is timed whole. The floor is a bare EVALSHA for each half. ${REDIS_METHOD}`,
  headline: ["grants/s"],
  reasons: {
    "*":
      "A claim and a release are one round trip each, as in the floor, but their scripts also keep a queue, a token that never " +
      "falls, a lease and a record for lists.",
  },
  async run() {
    const load = { callers: 1, keys: 1, timed: "pair" } as const;
    const rounds = await measureOnRedis(NAMES, { processes: 1, load, ms: 300, warmUpMs: WARM_UP_MS });
    const [holdfast, floor] = [rounds(HOLDFAST), rounds(BASELINE)];
    const p50 = computeRatio(figurePerRound(holdfast, "p50"), figurePerRound(floor, "p50"));
    return {
      rows: NAMES.map((name) => storeRow(name, rounds, SERIAL_COLUMNS)),
      checks: [
        check("gate", "commands a pair", computeSpread(figurePerRound(holdfast, "sent")), "exactly", 2),
        check("goal", "p50 of the floor", p50, "at most", 1.25),
        commandsInside(rounds),
      ],
    };
  },
};

export const redisManyKeys: BenchCase = {
  name: "redis-wide",
  title: "Redis, 64 callers on 10,000 keys",
  about: `64 callers of one process, each on keys that no other caller wants then. ${REDIS_METHOD}`,
  headline: ["grants/s"],
  reasons: {
    "*":
      "The script of a claim reads and writes a record with its queue, lease and token, and the client keeps a lease by its own " +
      "clock. 16 calls share a command: larger commands cost less CPU, but the client and Redis then wait for each other.",
  },
  async run() {
    const load = { callers: 64, keys: 10_000, timed: "nothing" } as const;
    const rounds = await measureOnRedis(NAMES, { processes: 1, load, ms: 300, warmUpMs: WARM_UP_MS });
    const [holdfast, floor] = [rounds(HOLDFAST), rounds(BASELINE)];
    const [rates, best] = [grantRates(holdfast), bestRates(rounds, THIRD_PARTIES)];
    const clientCpu = computeRatio(clientCpuPerGrant(holdfast), clientCpuPerGrant(floor));
    const serverCpu = computeRatio(serverCpuPerGrant(holdfast), serverCpuPerGrant(floor));
    return {
      rows: NAMES.map((name) => storeRow(name, rounds, MANY_KEYS_COLUMNS)),
      checks: [
        // fewer where the calls of one turn share a command
        check("gate", "commands a pair", computeSpread(figurePerRound(holdfast, "sent")), "at most", 2),
        check("goal", "rate of the floor", computeRatio(rates, grantRates(floor)), "at least", 1),
        check("goal", "rate of the best rival", computeRatio(rates, best), "at least", 1),
        check("goal", "client CPU a pair of the floor", clientCpu, "at most", 1.1),
        check("goal", "Redis CPU a pair of the floor", serverCpu, "at most", 1.1),
        commandsInside(rounds),
      ],
    };
  },
};

function commandsInside(rounds: StoreRounds): Check {
  const commands = computeSpread(figurePerRound(rounds(HOLDFAST), "inside"));
  return check("goal", "commands inside the scripts, a pair", commands, "at most", MAX_COMMANDS);
}
