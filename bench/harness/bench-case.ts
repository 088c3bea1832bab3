/** What a case of the bench is, and what it finds. */

import type { Plot } from "./plot.ts";
import type { Spread } from "./stats.ts";

export interface BenchCase {
  /** As on the command line. */
  readonly name: string;
  readonly title: string;
  /** What was done, in one or two sentences. */
  readonly about: string;
  /** Its section of docs/benchmarks.md. Undefined: only the tables of docs/results have it. */
  readonly page?: PageSection;
  /**
   * Why a goal is missed or a rival is ahead, in one sentence: by the name of the check or of our row, or "*" for all
   * others. The page shows a reason only where it applies.
   */
  readonly reasons?: Readonly<Record<string, string>>;
  run(): Promise<Findings>;
}

/** The headings of docs/benchmarks.md, in their order. */
export const THEMES = [
  "A free lock",
  "A lock that its process used before",
  "Many callers, one lock",
  "Work under the lock",
  "From one process to the next",
  "Many locks",
  "Starting",
] as const;

interface PageSection {
  readonly theme: (typeof THEMES)[number];
  /** What the case measures, in one sentence. */
  readonly measures: string;
  readonly charts: readonly BarChart[];
}

/** Bars of one column of the table, one for each row that has a figure. */
export interface BarChart {
  readonly title: string;
  readonly column: string;
  readonly better: "more" | "less";
  /** Only the rows whose names begin so; the labels leave it out. */
  readonly prefix?: string;
}

export interface Findings {
  readonly rows: readonly Row[];
  readonly checks: readonly Check[];
  /** Drawn into docs/results. */
  readonly plot?: Plot;
}

/** One contestant's figures; a column it has no figure for is left out. */
export interface Row {
  readonly contestant: string;
  readonly figures: Readonly<Record<string, Spread>>;
}

/** A gate makes the command fail; a goal is only reported. */
export interface Check {
  readonly kind: "gate" | "goal";
  readonly what: string;
  readonly measured: Spread;
  readonly sense: "at least" | "at most" | "exactly";
  readonly bound: number;
  readonly met: boolean;
}

export function check(
  kind: Check["kind"],
  what: string,
  measured: Spread,
  sense: Check["sense"],
  bound: number,
): Check {
  const { median } = measured;
  const met = sense === "at least" ? median >= bound : sense === "at most" ? median <= bound : median === bound;
  // a gate holds in every round, a goal in the median
  const always = sense === "at least" ? measured.min >= bound : measured.max <= bound;
  const exact = measured.min === bound && measured.max === bound;
  const strict = sense === "exactly" ? exact : always;
  return { kind, what, measured, sense, bound, met: kind === "gate" ? strict : met };
}
