/** Holdfast on Redis against the rivals, many callers on one key. */

import type { BenchCase, Check, Findings, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { measureOnRedis } from "../harness/redis-rounds.ts";
import { grantVariation, starvedCallers } from "../harness/rounds.ts";
import type { WindowLoad } from "../harness/sampling-window.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column, LoadOptions, StoreRound, StoreRounds } from "../harness/store-rounds.ts";
import { bestRates, figurePerRound, grantRates, storeRow } from "../harness/store-rounds.ts";
import {
  BROKER,
  DIRECT_HAND_OFF,
  HOLDFAST,
  HOLDFAST_STRICT,
  REDIS_METHOD,
  REDIS_THIRD_PARTIES,
} from "../implementations/redis.ts";

const THIRD_PARTIES: readonly string[] = Object.keys(REDIS_THIRD_PARTIES);
const COLUMNS: readonly Column[] = [
  "rate",
  "p50",
  "p99",
  "longest",
  "commands",
  "inside",
  "spread",
  "starved",
  "stuck",
  "clientCpu",
  "serverCpu",
];

const ABOUT =
  "Nothing is done under the lock; each caller asks again at once. p50 and p99 are of the wait for a grant, of those who " +
  "got one; the longest counts those still waiting. At the end no caller asks again; those without a grant half a second " +
  "later are counted, and given up. With local hand-off, and in strict order. The plain direct hand-off is the " +
  `floor of strict order: two scripts and a PUBLISH. ${REDIS_METHOD}`;
const REASONS = {
  [HOLDFAST_STRICT]:
    "Every change of the process costs a release, a push and a claim, and the order of arrival decides when it comes. An unfair rival lets " +
    "the last holder take the lock again, which needs no push; see how many of its callers got nothing.",
};

/** Each of four processes works a quarter of the time, so V8 compiles it for seconds. */
const WARM_UP_MS = 5_000;

export const redisContended: BenchCase = {
  name: "redis-64",
  title: "Redis, 64 callers of one process on one key",
  about: `64 callers of one process. ${ABOUT}`,
  headline: ["grants/s", "callers with none"],
  reasons: REASONS,
  run: () =>
    measureContended(
      { processes: 1, load: { callers: 64, keys: 1, timed: "wait" }, ms: 400, warmUpMs: WARM_UP_MS, fair: true },
      { local: 20, strict: 1 },
    ),
};

export const redisMultiProcess: BenchCase = {
  name: "redis-processes",
  title: "Redis, 4 processes with 8 callers each on one key",
  about: `32 callers in 4 processes. ${ABOUT}`,
  headline: ["grants/s", "callers with none"],
  reasons: REASONS,
  run: () =>
    measureContended(
      { processes: 4, load: { callers: 8, keys: 1, timed: "wait" }, ms: 400, warmUpMs: WARM_UP_MS, fair: true },
      { local: 20, strict: 0.8 },
    ),
};

/**
 * Two commands serve as many as wait in one process; a little more, as a run is cut short when the last of a round
 * leave.
 */
const localCommands = (callers: number): number => (2 / callers) * 1.05;
const STRICT_COMMANDS = 2.1;
/** Inside the scripts, a grant in strict order. */
const STRICT_COMMANDS_INSIDE = 14;

async function measureContended(
  options: LoadOptions & { readonly load: WindowLoad },
  goals: { readonly local: number; readonly strict: number },
): Promise<Findings> {
  const names = [HOLDFAST, HOLDFAST_STRICT, DIRECT_HAND_OFF, ...THIRD_PARTIES, BROKER];
  const rounds = await measureOnRedis(names, options);
  const [holdfast, best] = [rounds(HOLDFAST), bestRates(rounds, THIRD_PARTIES)];
  const commands = computeSpread(figurePerRound(holdfast, "sent"));
  return {
    rows: names.map((name) => storeRow(name, rounds, COLUMNS)),
    checks: [
      check("goal", "rate of the best rival", computeRatio(grantRates(holdfast), best), "at least", goals.local),
      check("gate", "commands a grant", commands, "at most", localCommands(options.load.callers)),
      ...fairness("", rounds, HOLDFAST),
      ...createStrictChecks(rounds, goals.strict),
    ],
  };
}

function createStrictChecks(rounds: StoreRounds, goal: number): Check[] {
  const strict = rounds(HOLDFAST_STRICT);
  const rates = grantRates(strict);
  const rateOf = (others: readonly number[]): Spread => computeRatio(rates, others);
  const commands = computeSpread(figurePerRound(strict, "sent"));
  const inside = computeSpread(figurePerRound(strict, "inside"));
  return [
    check("goal", "strict order: rate of the best rival", rateOf(bestRates(rounds, THIRD_PARTIES)), "at least", goal),
    check(
      "goal",
      `strict order: rate of ${DIRECT_HAND_OFF}`,
      rateOf(grantRates(rounds(DIRECT_HAND_OFF))),
      "at least",
      0.9,
    ),
    check("goal", `strict order: rate of ${BROKER}`, rateOf(grantRates(rounds(BROKER))), "at least", 1),
    check("gate", "strict order: commands a grant", commands, "at most", STRICT_COMMANDS),
    check("goal", "strict order: commands inside the scripts, a grant", inside, "at most", STRICT_COMMANDS_INSIDE),
    ...fairness("strict order: ", rounds, HOLDFAST_STRICT),
    check("goal", "strict order: longest wait of the median", longestWaits(strict), "at most", 4),
  ];
}

function fairness(description: string, rounds: StoreRounds, name: string): Check[] {
  const [starved, spread] = [starvedCallers(rounds(name)), grantVariation(rounds(name))];
  return [
    check("gate", `${description}callers that got nothing`, computeSpread(starved), "exactly", 0),
    check("gate", `${description}spread of grants per caller`, computeSpread(spread), "at most", 0.05),
  ];
}

function longestWaits(rounds: readonly StoreRound[]): Spread {
  return computeRatio(figurePerRound(rounds, "most"), figurePerRound(rounds, "p50"));
}

/** It is watched until every caller can have had so many. */
const MIN_GRANTS = 3;

const QUEUES = [
  { processes: 1, callers: 8 },
  { processes: 1, callers: 512 },
  { processes: 4, callers: 16 },
  { processes: 4, callers: 128 },
] as const;

export const redisStrict: BenchCase = {
  name: "redis-strict",
  title: "Redis, strict order with shorter and longer queues",
  about: "Strict order: the order is that of arrival at Redis. What a grant costs must not depend on how many wait.",
  async run() {
    const rows: Row[] = [];
    const checks: Check[] = [];
    for (const { processes, callers } of QUEUES) {
      const load = { callers, keys: 1, timed: "wait" } as const;
      // so long that the turn of each caller comes several times
      const ms = processes * callers > 64 ? 1_000 : 300;
      const rounds = await measureOnRedis([HOLDFAST_STRICT], { processes, load, ms, fair: MIN_GRANTS });
      const strict = rounds(HOLDFAST_STRICT);
      const description = `${processes * callers} waiting in ${processes === 1 ? "one process" : `${processes} processes`}`;
      rows.push({ ...storeRow(HOLDFAST_STRICT, rounds, COLUMNS), name: description });
      const commands = computeSpread(figurePerRound(strict, "sent"));
      const starved = computeSpread(starvedCallers(strict));
      checks.push(
        check("gate", `${description}: commands a grant`, commands, "at most", STRICT_COMMANDS),
        check("gate", `${description}: callers that got nothing`, starved, "exactly", 0),
        check("goal", `${description}: longest wait of the median`, longestWaits(strict), "at most", 4),
      );
    }
    return { rows, checks };
  },
};
