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

type Figures = RunResult["figures"];
/** Figures of runs that are added up. */
const SUMMED = [
  ...(["effectiveFaults", "requests", "holds", "sections", "doubleHolds", "doubleHoldMs", "tokenRegressions"] as const),
  ...(["staleWritesRefused", "staleWritesAccepted", "staleWritesUnfenced", "losses", "inversions"] as const),
] as const;
/** Figures of which the longest of all runs counts. */
const LONGEST = ["latestNoticeMs", "longestWaitMs"] as const;

/** Of all runs of one subject on one store. `afterCrashMs` is of runs with no other fault, `leftovers` of those that could list them. */
export interface Totals
  extends Pick<Figures, (typeof SUMMED)[number] | (typeof LONGEST)[number] | "faults" | "leftovers" | "afterCrashMs"> {
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
  readonly grants: number;
  /** With the reasons. */
  readonly notTested: Readonly<Record<string, string>>;
}

/** Their rows may be of several files. */
export function sumRows(rows: readonly DatedRow[]): Totals {
  const results = rows.filter((row): row is Result => !("error" in row));
  const valuesOf = (name: (typeof SUMMED)[number] | (typeof LONGEST)[number]): readonly number[] =>
    results.map(({ figures }) => figures[name]);
  const verdict = (name: RunResult["verdict"]): number => results.filter((row) => row.verdict === name).length;
  const counted = results.flatMap(({ figures: { leftovers } }) => (leftovers === null ? [] : [leftovers]));
  return {
    ...mapNames(SUMMED, (name) => sum(valuesOf(name))),
    ...mapNames(LONGEST, (name) => Math.max(0, ...valuesOf(name))),
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
    grants: sum(results.map(({ figures }) => grantsOf(figures))),
    leftovers: counted.length === 0 ? null : sum(counted),
    afterCrashMs: results
      .filter(({ faults }) => faults.join() === "kill")
      .flatMap(({ figures }) => figures.afterCrashMs)
      .sort((a, b) => a - b),
    notTested: Object.assign({}, ...results.map(({ notTested }) => notTested)) as Totals["notTested"],
  };
}

function mapNames<Name extends string>(
  names: readonly Name[],
  toValue: (name: Name) => number,
): Readonly<Record<Name, number>> {
  return Object.fromEntries(names.map((name) => [name, toValue(name)])) as Record<Name, number>;
}

/** A grant of the store may serve several holders, one after the other. Without tokens they cannot be told apart, and holders are counted. */
function grantsOf({ storeGrants, holds }: Figures): number {
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
