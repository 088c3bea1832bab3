/** Holdfast on databases against the rivals, many callers on one key. */

import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { starvedCallers } from "../harness/rounds.ts";
import type { SqlKind } from "../harness/sql-rounds.ts";
import { listRivals, MARIADB_KIND, measureOnDatabase, POSTGRES_KIND } from "../harness/sql-rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column, StoreRounds } from "../harness/store-rounds.ts";
import { bestRates, figurePerRound, grantRates, storeRow } from "../harness/store-rounds.ts";

const CALLERS = 64;
const PROCESS_COUNTS = [1, 4];
/**
 * Holdfast is watched until every caller can have had so many: with fewer, one that got nothing may only have come
 * late.
 */
const FAIR_GRANTS = 4;
const COLUMNS: readonly Column[] = [
  "rate",
  "p50",
  "p99",
  "longest",
  "commands",
  "fewest",
  "largest",
  "starved",
  "stuck",
  "clientCpu",
  "serverCpu",
];

export const sqlExclusion: readonly BenchCase[] = [POSTGRES_KIND, MARIADB_KIND].map(createCase);

function createCase(kind: SqlKind): BenchCase {
  const { id, title, names } = kind;
  return {
    name: `sql-exclusion-${id}`,
    title: `${title}, ${CALLERS} callers on one key`,
    about:
      "In one process, and in 4 processes of 16 callers. Nothing is done under the lock; each caller asks again at once. p50 and p99 " +
      "are of the wait for a grant, of those who got one; the longest counts those still waiting. At the end no " +
      "caller asks again; those without a grant half a second later are counted, and given up. Each commit is synced to the disk.",
    headline: ["grants/s", "callers with none"],
    reasons: {
      "*":
        "The lock passes from process to process only as often as a waiter of another process asks, and GET_LOCK, which is no lease, " +
        "writes nothing to the disk.",
    },
    async run() {
      const implementations = [names.holdfast, ...listRivals(names)];
      const rows: Row[] = [];
      const checks: Check[] = [];
      for (const processes of PROCESS_COUNTS) {
        const load = { callers: CALLERS / processes, keys: 1, timed: "wait" } as const;
        const rounds = await measureOnDatabase(kind, implementations, { processes, load, ms: 400, fair: FAIR_GRANTS });
        const description = describe(processes);
        for (const name of implementations) rows.push(toRow(name, `${description}: ${name}`, rounds, processes));
        checks.push(...createChecks(kind, description, rounds, processes));
      }
      return { rows, checks };
    },
  };
}

function describe(processes: number): string {
  return processes === 1 ? "one process" : `${processes} processes`;
}

function toRow(name: string, label: string, rounds: StoreRounds, processes: number): Row {
  const row = storeRow(name, rounds, COLUMNS);
  if (rounds.failure(name) !== null) return row;
  const connections = computeSpread(connectionsPerProcess(rounds, name, processes));
  return { name: label, figures: { ...row.figures, "connections/process": connections } };
}

function connectionsPerProcess(rounds: StoreRounds, name: string, processes: number): readonly number[] {
  return figurePerRound(rounds(name), "connections").map((connections) => connections / processes);
}

function createChecks({ names }: SqlKind, description: string, rounds: StoreRounds, processes: number): Check[] {
  const rates = grantRates(rounds(names.holdfast));
  const best = bestRates(rounds, listRivals(names));
  return [
    check("goal", `${description}: rate of the best rival`, computeRatio(rates, best), "at least", 5),
    check(
      "gate",
      `${description}: callers that got nothing`,
      computeSpread(starvedCallers(rounds(names.holdfast))),
      "exactly",
      0,
    ),
    check(
      "goal",
      `${description}: connections per process`,
      computeSpread(connectionsPerProcess(rounds, names.holdfast, processes)),
      "at most",
      1,
    ),
  ];
}
