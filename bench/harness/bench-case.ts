/** What a case of the bench is, and what it finds. */

import type { Spread } from "./stats.ts";

export interface BenchCase {
  /** As on the command line. */
  readonly name: string;
  readonly title: string;
  /** What was done, in one or two sentences. */
  readonly about: string;
  /** The columns that docs/results.md keeps. The first one is compared; others tell how it came about. */
  readonly headline?: readonly string[];
  /** Why a rival is ahead, in one sentence: by the name of our row, or "*" for all others. Shown only where one is. */
  readonly reasons?: Readonly<Record<string, string>>;
  run(): Promise<Findings>;
}

export interface Findings {
  readonly rows: readonly Row[];
  readonly checks: readonly Check[];
}

/** One row of a table: an implementation's figures; a column it has no figure for is left out. */
export interface Row {
  readonly name: string;
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
