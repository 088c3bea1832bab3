/** Ours on Redis against the floor and the rivals, without contention and on one key. */

import type { BenchCase, Check, Findings } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { measureOnRedis } from "../harness/redis-rounds.ts";
import type { WindowLoad } from "../harness/sampling-window.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column, LoadOptions, StoreRounds } from "../harness/store-rounds.ts";
import {
  bestRates,
  clientCpuPerGrant,
  figurePerRound,
  grantRates,
  grantVariation,
  starvedCallers,
  storeRow,
} from "../harness/store-rounds.ts";
import {
  BASELINE,
  HOLDFAST,
  HOLDFAST_STRICT,
  REDIS_SEMAPHORE,
  REDIS_THIRD_PARTIES,
  REDLOCK_BETA,
  SIMPLE_REDIS_MUTEX,
} from "../implementations/redis.ts";

const THIRD_PARTIES: readonly string[] = Object.keys(REDIS_THIRD_PARTIES);
/** Has a broker of its own instead of Redis. */
const BROKER = "live-mutex";

const UNCONTENDED_NAMES: readonly Column[] = ["rate", "p50", "p99", "commands", "clientCpu", "serverCpu"];
const CONTENDED_NAMES: readonly Column[] = [
  "rate",
  "p50",
  "p99",
  "longest",
  "commands",
  "spread",
  "starved",
  "stuck",
  "clientCpu",
  "serverCpu",
];
const MANY_KEYS_NAMES: readonly Column[] = ["rate", "commands", "clientCpu", "serverCpu"];

const METHOD =
  "All on the same Redis, each with ioredis 6 (simple-redis-mutex with node-redis 6), the rivals with their own delays " +
  "between attempts and as many attempts as it takes.";

export const redisUncontended: BenchCase = {
  name: "redis-alone",
  title: "Redis, one caller, uncontended",
  about: `One caller, one key, in a loop; a pair is timed whole. The floor is a bare EVALSHA for each half. ${METHOD}`,
  async run() {
    const names = [HOLDFAST, BASELINE, ...THIRD_PARTIES, BROKER];
    const rounds = await measureOnRedis(names, { processes: 1, load: { callers: 1, keys: 1, timed: "pair" }, ms: 300 });
    const [holdfast, floor] = [rounds(HOLDFAST), rounds(BASELINE)];
    return {
      rows: names.map((name) => storeRow(name, rounds, UNCONTENDED_NAMES)),
      checks: [
        check("gate", "commands a pair", computeSpread(figurePerRound(holdfast, "sent")), "exactly", 2),
        check(
          "goal",
          "p50 of the floor",
          computeRatio(figurePerRound(holdfast, "p50"), figurePerRound(floor, "p50")),
          "at most",
          1.15,
        ),
      ],
    };
  },
};

export const redisManyKeys: BenchCase = {
  name: "redis-wide",
  title: "Redis, 64 callers on 10,000 keys",
  about: `64 callers of one process, each on keys that no other caller wants then. ${METHOD}`,
  async run() {
    const names = [HOLDFAST, BASELINE, ...THIRD_PARTIES, BROKER];
    const load = { callers: 64, keys: 10_000, timed: "nothing" } as const;
    const rounds = await measureOnRedis(names, { processes: 1, load, ms: 300 });
    const [holdfast, floor] = [rounds(HOLDFAST), rounds(BASELINE)];
    return {
      rows: names.map((name) => storeRow(name, rounds, MANY_KEYS_NAMES)),
      checks: [
        // fewer where releases of one turn share a call
        check("gate", "commands a pair", computeSpread(figurePerRound(holdfast, "sent")), "at most", 2),
        check("goal", "rate of the floor", computeRatio(grantRates(holdfast), grantRates(floor)), "at least", 0.85),
        check(
          "goal",
          "rate of the best rival",
          computeRatio(grantRates(holdfast), bestRates(rounds, THIRD_PARTIES)),
          "at least",
          0.85,
        ),
        check(
          "goal",
          "client CPU of the floor",
          computeRatio(clientCpuPerGrant(holdfast), clientCpuPerGrant(floor)),
          "at most",
          1.25,
        ),
      ],
    };
  },
};

export const redisContended: BenchCase = {
  name: "redis-64",
  title: "Redis, 64 callers of one process on one key",
  about:
    "Nothing is done under the lock; each caller asks again at once. p50 and p99 are of the wait for a grant, of those who " +
    "got one; the longest counts those still waiting. When the time is over nobody asks again, and who has no grant half a second " +
    `later is counted, and given up. With local hand-off, and in strict order (handoffs 1). ${METHOD}`,
  run: () =>
    measureContended(
      { processes: 1, load: { callers: 64, keys: 1, timed: "wait" }, ms: 400, fair: true },
      { local: 20, strict: 1 },
    ),
};

export const redisMultiProcess: BenchCase = {
  name: "redis-processes",
  title: "Redis, 4 processes with 8 callers each on one key",
  about: `As before, with 32 callers in four processes. ${METHOD}`,
  run: () =>
    measureContended(
      { processes: 4, load: { callers: 8, keys: 1, timed: "wait" }, ms: 400, fair: true },
      { local: 15, strict: 0.9 },
    ),
};

/** Two commands serve as many as wait in one process; a little more, as a run is cut short when the last of a round leave. */
const localCommands = (callers: number): number => (2 / callers) * 1.05;
const STRICT_COMMANDS = 2.1;

async function measureContended(
  options: LoadOptions & { readonly load: WindowLoad },
  goals: { readonly local: number; readonly strict: number },
): Promise<Findings> {
  const names = [HOLDFAST, HOLDFAST_STRICT, ...THIRD_PARTIES, BROKER];
  const rounds = await measureOnRedis(names, options);
  const [holdfast, strict, best] = [rounds(HOLDFAST), rounds(HOLDFAST_STRICT), bestRates(rounds, THIRD_PARTIES)];
  return {
    rows: names.map((name) => storeRow(name, rounds, CONTENDED_NAMES)),
    checks: [
      check("goal", "rate of the best rival", computeRatio(grantRates(holdfast), best), "at least", goals.local),
      check(
        "gate",
        "commands a grant",
        computeSpread(figurePerRound(holdfast, "sent")),
        "at most",
        localCommands(options.load.callers),
      ),
      ...fairness("", rounds, HOLDFAST),
      check(
        "goal",
        "strict order: rate of the best rival",
        computeRatio(grantRates(strict), best),
        "at least",
        goals.strict,
      ),
      check(
        "goal",
        `strict order: rate of ${BROKER}`,
        computeRatio(grantRates(strict), grantRates(rounds(BROKER))),
        "at least",
        1,
      ),
      check(
        "gate",
        "strict order: commands a grant",
        computeSpread(figurePerRound(strict, "sent")),
        "at most",
        STRICT_COMMANDS,
      ),
      ...fairness("strict order: ", rounds, HOLDFAST_STRICT),
      check("goal", "strict order: longest wait of the median", longestWaits(strict), "at most", 4),
    ],
  };
}

function fairness(description: string, rounds: StoreRounds, name: string): Check[] {
  return [
    check("gate", `${description}callers that got nothing`, computeSpread(starvedCallers(rounds(name))), "exactly", 0),
    check(
      "gate",
      `${description}spread of grants per caller`,
      computeSpread(grantVariation(rounds(name))),
      "at most",
      0.05,
    ),
  ];
}

function longestWaits(rounds: ReturnType<StoreRounds>): ReturnType<typeof computeSpread> {
  return computeRatio(figurePerRound(rounds, "most"), figurePerRound(rounds, "p50"));
}

const STRICT_COLUMNS = [
  { processes: 1, callers: 8 },
  { processes: 1, callers: 512 },
  { processes: 4, callers: 16 },
  { processes: 4, callers: 128 },
] as const;

export const redisStrict: BenchCase = {
  name: "redis-strict",
  title: "Redis, strict order with shorter and longer lines",
  about: "handoffs 1: every grant is one of Redis's. What a grant costs must not depend on how many wait.",
  async run() {
    const rows = [];
    const checks: Check[] = [];
    for (const { processes, callers } of STRICT_COLUMNS) {
      const load = { callers, keys: 1, timed: "wait" } as const;
      // so long that everybody's turn comes several times
      const rounds = await measureOnRedis([HOLDFAST_STRICT], {
        processes,
        load,
        ms: processes * callers > 64 ? 1_000 : 300,
      });
      const description = `${processes * callers} waiting in ${processes === 1 ? "one process" : `${processes} processes`}`;
      rows.push({ ...storeRow(HOLDFAST_STRICT, rounds, CONTENDED_NAMES), contestant: description });
      checks.push(
        check(
          "gate",
          `${description}: commands a grant`,
          computeSpread(figurePerRound(rounds(HOLDFAST_STRICT), "sent")),
          "at most",
          STRICT_COMMANDS,
        ),
        check(
          "gate",
          `${description}: callers that got nothing`,
          computeSpread(starvedCallers(rounds(HOLDFAST_STRICT))),
          "exactly",
          0,
        ),
        check(
          "goal",
          `${description}: longest wait of the median`,
          longestWaits(rounds(HOLDFAST_STRICT)),
          "at most",
          4,
        ),
      );
    }
    return { rows, checks };
  },
};

const SECTIONS_MS = [0.1, 1, 10];
const UNCONTENDED_LOAD = "no lock";

export const redisSections: BenchCase = {
  name: "redis-sections",
  title: "Redis, sections that take time",
  about:
    "8 callers of one process, and 4 processes with 2 callers each, on one key. 0.1 ms is spent computing, 1 and 10 ms are " +
    "waited for with a timer. The limit is one caller who does such sections without a lock.",
  async run() {
    // of the rivals two that ask again and again, and the one that is told
    const names = [HOLDFAST, HOLDFAST_STRICT, REDLOCK_BETA, REDIS_SEMAPHORE, SIMPLE_REDIS_MUTEX, UNCONTENDED_LOAD];
    const locks = names.filter((name) => name !== UNCONTENDED_LOAD);
    const rows = [];
    const checks: Check[] = [];
    for (const processes of [1, 4]) {
      for (const sectionMs of SECTIONS_MS) {
        const description = `${sectionMs} ms, ${processes === 1 ? "one process" : `${processes} processes`}`;
        const load = (name: string) =>
          ({ callers: name === UNCONTENDED_LOAD ? 1 : 8 / processes, keys: 1, timed: "wait", sectionMs }) as const;
        const groupCount = (name: string): number => (name === UNCONTENDED_LOAD ? 1 : processes);
        const rounds = await measureOnRedis(names, { processes: groupCount, load, ms: 250 });
        const limit = grantRates(rounds(UNCONTENDED_LOAD));
        for (const name of locks) {
          const row = storeRow(name, rounds, ["rate", "p50", "longest", "commands", "spread", "starved"]);
          const limitShare =
            rounds.failure(name) === null ? { "of the limit": computeRatio(grantRates(rounds(name)), limit) } : {};
          rows.push({ contestant: `${description}: ${row.contestant}`, figures: { ...row.figures, ...limitShare } });
        }
        const thirdParties = locks.filter((name) => name !== HOLDFAST && name !== HOLDFAST_STRICT);
        const [rates, best] = [grantRates(rounds(HOLDFAST)), bestRates(rounds, thirdParties)];
        checks.push(
          check("goal", `${description}: rate of the best rival`, computeRatio(rates, best), "at least", 1),
          check(
            "gate",
            `${description}: callers that got nothing`,
            computeSpread(starvedCallers(rounds(HOLDFAST))),
            "exactly",
            0,
          ),
        );
      }
    }
    return { rows, checks };
  },
};
