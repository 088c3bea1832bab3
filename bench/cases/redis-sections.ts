/** Holdfast on Redis where callers work under the lock for a while. */

import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { measureOnRedis } from "../harness/redis-rounds.ts";
import { starvedCallers } from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { StoreRounds } from "../harness/store-rounds.ts";
import { bestRates, grantRates, storeRow } from "../harness/store-rounds.ts";
import {
  BROKER,
  HOLDFAST,
  HOLDFAST_STRICT,
  REDIS_SEMAPHORE,
  REDLOCK_4,
  REDLOCK_BETA,
  SIMPLE_REDIS_MUTEX,
  VERROU,
} from "../implementations/redis.ts";

const CALLERS = 8;
/**
 * Holdfast is watched until every caller can have had so many: with fewer, one that got nothing may only have come
 * late.
 */
const MIN_GRANTS = 3;
/** The control: one caller that does such sections without a lock. */
const UNLOCKED = "no lock";
/** Its rate is the limit: a timer ends a little late, and so does the section. */
const LIMIT =
  "0.1 ms is spent computing, 1 and 10 ms are waited for with a timer. The limit is one caller that does such sections without a " +
  "lock: 1 / section, with the section as long as it really is.";
/** The window lasts for so many sections that one more or less is no difference. */
const SECTIONS = [
  { sectionMs: 0.1, ms: 250, goal: 0.5 },
  { sectionMs: 1, ms: 400, goal: 0.9 },
  { sectionMs: 10, ms: 1_000, goal: 0.98 },
] as const;

export const redisSections: BenchCase = {
  name: "redis-sections",
  title: "Redis, sections that take time, one process",
  about: `8 callers of one process on one key. ${LIMIT}`,
  headline: ["grants/s", "callers with none"],
  reasons: {
    [HOLDFAST_STRICT]:
      "In strict order each section waits for a hand-off by Redis; a rival that lets the last holder take the lock again waits for " +
      "none, and most of its callers get nothing.",
    "*": "When a turn ends after 10 ms, the lock goes through Redis once more, which a rival that keeps no order does not do.",
  },
  async run() {
    // two rivals poll; simple-redis-mutex waits for a message
    const names = [HOLDFAST, HOLDFAST_STRICT, REDLOCK_BETA, REDIS_SEMAPHORE, SIMPLE_REDIS_MUTEX];
    const rows: Row[] = [];
    const checks: Check[] = [];
    for (const { sectionMs, ms, goal } of SECTIONS) {
      const load = (name: string) =>
        ({ callers: name === UNLOCKED ? 1 : CALLERS, keys: 1, timed: "wait", sectionMs }) as const;
      const rounds = await measureOnRedis([...names, UNLOCKED], { processes: 1, load, ms, fair: MIN_GRANTS });
      const limit = grantRates(rounds(UNLOCKED));
      rows.push(...toRows(`${sectionMs} ms: `, names, rounds, limit));
      const share = computeRatio(grantRates(rounds(HOLDFAST)), limit);
      checks.push(
        check("goal", `${sectionMs} ms: rate of the limit`, share, "at least", goal),
        checkStarved(`${sectionMs} ms`, rounds),
      );
    }
    return { rows, checks };
  },
};

export const redisSectionsOfProcesses: BenchCase = {
  name: "redis-sections-processes",
  title: "Redis, sections that take time, 4 processes",
  about:
    "4 processes with 2 callers each on one key, which work under the lock for 0.1 ms (computing), 1 and 10 ms (a timer).",
  headline: ["grants/s", "callers with none"],
  reasons: {
    [HOLDFAST_STRICT]:
      "In strict order each section waits for a hand-off by Redis; a rival that lets the last holder take the lock again waits for " +
      "none, and most of its callers get nothing.",
    "*":
      "2 callers of a process take turns without Redis for at most 10 ms, then the other processes get the lock; the best rival " +
      "lets one process keep it.",
  },
  async run() {
    const names = [
      HOLDFAST,
      HOLDFAST_STRICT,
      REDLOCK_4,
      REDLOCK_BETA,
      REDIS_SEMAPHORE,
      VERROU,
      SIMPLE_REDIS_MUTEX,
      BROKER,
    ];
    const rivals = names.slice(2);
    const rows: Row[] = [];
    const checks: Check[] = [];
    for (const { sectionMs } of SECTIONS) {
      const load = { callers: CALLERS / 4, keys: 1, timed: "wait", sectionMs } as const;
      const rounds = await measureOnRedis(names, { processes: 4, load, ms: 300, fair: MIN_GRANTS });
      rows.push(...toRows(`${sectionMs} ms: `, names, rounds, null));
      const ratio = computeRatio(grantRates(rounds(HOLDFAST)), bestRates(rounds, rivals));
      checks.push(
        check("goal", `${sectionMs} ms: rate of the best rival`, ratio, "at least", 1),
        checkStarved(`${sectionMs} ms`, rounds),
      );
    }
    return { rows, checks };
  },
};

/** @param limit sections a second without a lock, round by round */
function toRows(prefix: string, names: readonly string[], rounds: StoreRounds, limit: readonly number[] | null): Row[] {
  return names.map((name) => {
    const { name: label, figures } = storeRow(name, rounds, [
      "rate",
      "p50",
      "longest",
      "commands",
      "spread",
      "starved",
    ]);
    const share =
      limit === null || rounds.failure(name) !== null
        ? {}
        : { "of the limit": computeRatio(grantRates(rounds(name)), limit) };
    return { name: prefix + label, figures: { ...figures, ...share } };
  });
}

function checkStarved(description: string, rounds: StoreRounds): Check {
  const starved = computeSpread(starvedCallers(rounds(HOLDFAST)));
  return check("gate", `${description}: callers that got nothing`, starved, "exactly", 0);
}
