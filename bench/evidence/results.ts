/** bench/results/torture-*.json, summed: the only source of the figures in docs/evidence.md. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sum } from "../harness/stats.ts";
import type { RunResult, TortureReport, TortureRow } from "../torture/report.ts";

const RESULTS = "bench/results";
const REPORT = /^torture-.*\.json$/;

/** The oldest first. */
export function readTortureReports(): readonly TortureReport[] {
  return readdirSync(RESULTS)
    .filter((name) => REPORT.test(name))
    .sort()
    .map((name) => JSON.parse(readFileSync(join(RESULTS, name), "utf8")) as TortureReport);
}

/** A row with what its file says of all of its rows. */
export type DatedRow = TortureRow & Pick<TortureReport, "commit" | "changed" | "date">;
type Result = DatedRow & RunResult;

export function rowsOf(reports: readonly TortureReport[]): readonly DatedRow[] {
  return reports.flatMap(({ rows, commit, changed, date }) => rows.map((row) => ({ ...row, commit, changed, date })));
}

/** Of all runs of one subject on one store. */
export interface Totals {
  /** With their versions. */
  readonly storeNames: readonly string[];
  readonly days: readonly string[];
  readonly commits: readonly string[];
  readonly leasesMs: readonly number[];
  readonly runs: number;
  readonly verdicts: Readonly<Record<RunResult["verdict"] | "failed", number>>;
  /** By invariant. */
  readonly violations: Readonly<Record<string, number>>;
  /** In which faults were injected. */
  readonly seconds: number;
  /** By their names. */
  readonly faults: Readonly<Record<string, number>>;
  readonly effectiveFaults: number;
  readonly requests: number;
  readonly holds: number;
  readonly grants: number;
  readonly sections: number;
  readonly doubleHolds: number;
  readonly doubleHoldMs: number;
  readonly tokenRegressions: number;
  readonly staleWritesRefused: number;
  readonly staleWritesAccepted: number;
  readonly staleWritesUnfenced: number;
  readonly losses: number;
  readonly latestNoticeMs: number;
  readonly longestWaitMs: number;
  readonly inversions: number;
  /** Null: the store cannot list them. */
  readonly leftovers: number | null;
  /** In runs with no other fault, in the order of length. */
  readonly afterCrashMs: readonly number[];
  /** With the reasons. */
  readonly notTested: Readonly<Record<string, string>>;
}

/** Their rows may be of several files. */
export function sumRows(rows: readonly DatedRow[]): Totals {
  const results = rows.filter((row): row is Result => !("error" in row));
  const total = (count: (figures: RunResult["figures"]) => number): number =>
    sum(results.map(({ figures }) => count(figures)));
  const longest = (ms: (figures: RunResult["figures"]) => number): number =>
    Math.max(0, ...results.map(({ figures }) => ms(figures)));
  const verdict = (name: RunResult["verdict"]): number => results.filter((row) => row.verdict === name).length;
  const counted = results.flatMap(({ figures: { leftovers } }) => (leftovers === null ? [] : [leftovers]));
  return {
    storeNames: distinct(results.map(({ storeName }) => storeName)),
    days: [...distinct(rows.map(({ date }) => date.slice(0, 10)))].sort(),
    commits: distinct(rows.map(({ commit, changed }) => `${commit}${changed ? " with changes" : ""}`)),
    leasesMs: distinct(results.map(({ ttlMs }) => ttlMs)),
    runs: rows.length,
    verdicts: {
      ...{ ok: verdict("ok"), violated: verdict("violated"), unknown: verdict("unknown") },
      failed: rows.length - results.length,
    },
    violations: sumByName(results.map(({ violations }) => violations)),
    seconds: sum(results.map(({ seconds }) => seconds)),
    faults: sumByName(results.map(({ figures }) => figures.faults)),
    effectiveFaults: total(({ effectiveFaults }) => effectiveFaults),
    requests: total(({ requests }) => requests),
    holds: total(({ holds }) => holds),
    grants: total(grantsOf),
    sections: total(({ sections }) => sections),
    doubleHolds: total(({ doubleHolds }) => doubleHolds),
    doubleHoldMs: total(({ doubleHoldMs }) => doubleHoldMs),
    tokenRegressions: total(({ tokenRegressions }) => tokenRegressions),
    staleWritesRefused: total(({ staleWritesRefused }) => staleWritesRefused),
    staleWritesAccepted: total(({ staleWritesAccepted }) => staleWritesAccepted),
    staleWritesUnfenced: total(({ staleWritesUnfenced }) => staleWritesUnfenced),
    losses: total(({ losses }) => losses),
    latestNoticeMs: longest(({ latestNoticeMs }) => latestNoticeMs),
    longestWaitMs: longest(({ longestWaitMs }) => longestWaitMs),
    inversions: total(({ inversions }) => inversions),
    leftovers: counted.length === 0 ? null : sum(counted),
    afterCrashMs: results
      .filter(({ faults }) => faults.join() === "kill")
      .flatMap(({ figures }) => figures.afterCrashMs)
      .sort((a, b) => a - b),
    notTested: Object.assign({}, ...results.map(({ notTested }) => notTested)) as Totals["notTested"],
  };
}

/** A grant of the store may serve several holders, one after the other. Without tokens they cannot be told apart, and holders are counted. */
function grantsOf({ storeGrants, holds }: RunResult["figures"]): number {
  return storeGrants ?? holds;
}

function sumByName(counts: readonly Readonly<Record<string, number>>[]): Readonly<Record<string, number>> {
  const sums: Record<string, number> = {};
  for (const count of counts) for (const [name, value] of Object.entries(count)) sums[name] = (sums[name] ?? 0) + value;
  return sums;
}

export function distinct<T>(values: readonly T[]): readonly T[] {
  return [...new Set(values)];
}
