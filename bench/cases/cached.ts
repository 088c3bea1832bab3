/**
 * Cached locks, on any store that recalls them: used again by their process, beside a mutex in memory, which asks no
 * store either; and what they cost other processes: two that take turns, and one that waits for a lock that another one
 * has cached.
 */

import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { countLines } from "../harness/frame-counts.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column, StoreKind, StoreRounds } from "../harness/store-rounds.ts";
import { figurePerRound, grantRates, measureOnStore, storeRow } from "../harness/store-rounds.ts";
import type { ExerciseOptions, TurnFigures } from "../harness/turns.ts";
import { measureTurns, TURNS, takeTurns, waitBehind } from "../harness/turns.ts";

/** A store with the names of its implementations. */
export interface CachingSubject {
  /** Begins the names of its cases. */
  readonly group: string;
  readonly title: string;
  readonly kind: StoreKind;
  readonly uncached: string;
  readonly cached: string;
  /** The cached one with every second push lost; null: not measured. */
  readonly lossy: string | null;
}

const THIRD_PARTY = "async-mutex";
const LOAD = { callers: 1, keys: 1, timed: "nothing" } as const;
const WINDOW_MS = 500;
const COLUMNS: readonly Column[] = ["rate", "commands", "clientCpu", "serverCpu"];
const MIN_RATE = 0.4;
/** The unit of the goal. */
const GRANTS = 1_024;
const MAX_COMMANDS = 2;

export function createReuse(subject: CachingSubject): BenchCase {
  const { group, title, kind, uncached, cached } = subject;
  return {
    name: `${group}-cached`,
    title: `${title}, a cached lock used again by its process`,
    about:
      'One caller, one key, in a loop, with `cache: "10s"` and without it. The first use is a claim at the store, the next ones are granted ' +
      "from its tokens. async-mutex has neither lease, token nor store.",
    headline: ["grants/s"],
    reasons: {
      [uncached]: "Without the option a pair is two round trips to a store; async-mutex has none.",
      "*":
        "A re-use looks at the clock for the lease, takes the next token and makes a lock with its events; async-mutex has a queue and " +
        "nothing else.",
    },
    async run() {
      const names = [cached, uncached, THIRD_PARTY];
      const rounds = await measureOnStore(kind, names, { processes: 1, load: LOAD, ms: WINDOW_MS });
      const rate = computeRatio(grantRates(rounds(cached)), grantRates(rounds(THIRD_PARTY)));
      const calls = computeSpread(await countCalls(subject, rounds));
      return {
        rows: names.map((name) => storeRow(name, rounds, COLUMNS)),
        checks: [
          check("goal", `rate of ${THIRD_PARTY}`, rate, "at least", MIN_RATE),
          check("gate", "calls to the store for 1,024 grants", calls, "at most", MAX_COMMANDS),
        ],
      };
    },
  };
}

/** For 1,024 grants: commands of Redis, lines to a server. */
async function countCalls({ kind, cached }: CachingSubject, rounds: StoreRounds): Promise<readonly number[]> {
  if (kind.countedCommands(cached) !== undefined)
    return figurePerRound(rounds(cached), "sent").map((perGrant) => perGrant * GRANTS);
  const { up } = await countLines(cached, { callers: 1, keys: 1, ms: WINDOW_MS, latencies: false });
  return [up * GRANTS];
}

const FRESH_KEYS = ", every lock cached";
/** A lock is not cached for a while when it was recalled twice in a row: so many turns on a key pass before. */
const TURNS_OF_KEY = 4;

export function createTurns({ group, title, kind, uncached, cached }: CachingSubject): BenchCase {
  return {
    name: `${group}-cached-turns`,
    title: `${title}, two processes in turns on a cached lock`,
    about:
      "One process acquires and releases the lock, then the other one; the time of a turn is that of both calls. With `cache` every turn finds the lock " +
      "with the other process, until that is noticed: a lock that was recalled twice in a row without another use is not cached for a while. " +
      `"${FRESH_KEYS.slice(2)}": a new key every ${TURNS_OF_KEY} turns, so that this never happens; its first turn does not count.`,
    headline: ["p50 us"],
    reasons: { "*": "The claim of a process recalls the other one, which has to be woken, and releases." },
    async run() {
      const names = [uncached, cached, cached + FRESH_KEYS];
      const figures = await measureTurns(
        kind,
        names,
        (name) => (name.endsWith(FRESH_KEYS) ? freshKeys(takeTurns) : oneKey()),
        (name) => name.replace(FRESH_KEYS, ""),
      );
      const p50Of = (name: string): Spread => ratioOf(figures, name, uncached, "p50");
      const checks: Check[] = [
        check("goal", "every lock cached: p50 of a turn of uncached", p50Of(cached + FRESH_KEYS), "at most", 1.8),
        check("goal", "p50 of a turn of uncached", p50Of(cached), "at most", 1.05),
      ];
      if (kind.countedCommands(cached) !== undefined) {
        const commands = ratioOf(figures, cached + FRESH_KEYS, uncached, "commands");
        checks.push(check("goal", "every lock cached: commands a turn of uncached", commands, "at most", 1));
      }
      return { rows: toRows(figures), checks };
    },
  };
}

/** A mean of so many times is steady enough. */
const LOSSY_TURNS = IS_QUICK_RUN ? 5 : 20;
const WAITER_TURNS = Math.ceil(TURNS / 4);
const MAX_LOSSY_MS = 500;

export function createWaiter({ group, title, kind, uncached, cached, lossy }: CachingSubject): BenchCase {
  return {
    name: `${group}-cached-waiter`,
    title: `${title}, a waiter behind an idle cached lock of another process`,
    about:
      "One process acquires and releases a lock; 5 to 15 ms later another one acquires it, and its time counts. Without `cache` the lock is free then, " +
      "which costs one round trip; with it the first process has to be told, and releases. The lease is 30 s." +
      (lossy === null ? "" : " Half of the pushes lost: of all messages of Redis to either process, at random."),
    headline: ["p50 us"],
    reasons: { "*": "Another process has to be woken, which takes longer than the answer of a store that is awake." },
    async run() {
      const names = [uncached, cached, ...(lossy === null ? [] : [lossy])];
      const figures = await measureTurns(kind, names, (name) =>
        freshKeys(waitBehind, name === lossy ? LOSSY_TURNS : WAITER_TURNS, 1),
      );
      const checks = [
        // a free lock is one round trip: this one is two
        check("goal", "p50 of behind a free lock", ratioOf(figures, cached, uncached, "p50"), "at most", 2),
      ];
      if (lossy !== null) {
        const mean = computeSpread((figures.get(lossy)?.mean ?? []).map((micros) => micros / 1_000));
        checks.push(check("goal", "half of the pushes lost: mean ms", mean, "at most", MAX_LOSSY_MS));
      }
      return { rows: toRows(figures), checks };
    },
  };
}

function oneKey(): ExerciseOptions {
  return { exercise: takeTurns, turns: TURNS, keyOf: () => "one", isCounted: () => true };
}

/** A new key every few turns; the first turn of a key finds no other holder. */
function freshKeys(exercise: ExerciseOptions["exercise"], turns = TURNS, turnsOfKey = TURNS_OF_KEY): ExerciseOptions {
  return {
    exercise,
    turns,
    keyOf: (turn) => String(Math.floor(turn / turnsOfKey)),
    isCounted: (turn) => turnsOfKey === 1 || turn % turnsOfKey > 0,
  };
}

function ratioOf(
  figures: ReadonlyMap<string, TurnFigures>,
  name: string,
  other: string,
  figure: keyof TurnFigures,
): Spread {
  return computeRatio(figures.get(name)?.[figure] ?? [], figures.get(other)?.[figure] ?? []);
}

function toRows(figures: ReadonlyMap<string, TurnFigures>): Row[] {
  return [...figures].map(([name, { p50, mean, longest, commands }]) => ({
    name,
    figures: {
      "p50 us": computeSpread(p50),
      "mean us": computeSpread(mean),
      "longest ms": computeSpread(longest.map((micros) => micros / 1_000)),
      ...(commands.every((count) => Number.isFinite(count)) ? { "commands/turn": computeSpread(commands) } : {}),
    },
  }));
}
