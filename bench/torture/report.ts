/** The file below bench/results that a call of `npm run bench -- --torture` writes: a row for each run. docs/evidence.md is made of these files. */

import type { Summary } from "../../src/torture/report/summary.ts";

export interface TortureReport {
  /** The last one that changed src. */
  readonly commit: string;
  /** The sources differed from it. */
  readonly changed: boolean;
  readonly date: string;
  readonly machine: string;
  readonly node: string;
  readonly rows: readonly TortureRow[];
}

/** A run, whatever its verdict is. */
export type TortureRow = RunIdentity & (RunResult | RunFailure);

interface RunIdentity {
  /** "Holdfast", or the kind of a rival: its name is published when its maintainers have been asked. */
  readonly class: string;
  /** As on the command line. */
  readonly store: string;
  readonly seed: number;
  /** Repeats the run. */
  readonly command: string;
}

export interface RunResult
  extends Pick<Summary, "verdict" | "reasons" | "notTested" | "figures" | "ttlMs" | "workers" | "seconds" | "faults"> {
  /** "Redis 7.0.15"; of a store that was reached by its url: that. */
  readonly storeName: string;
  /** How many of each invariant. */
  readonly violations: Readonly<Record<string, number>>;
  /** Pairs of holders by key, each first holder once: one that does not notice its loss overlaps with each that holds after it. */
  readonly overlaps: Readonly<Record<string, number>>;
  readonly examples: Summary["violations"];
}

/** It printed no result. */
export interface RunFailure {
  readonly error: string;
}

/** One line a row: a file of many runs can be read, and compared by line. */
export function formatReport({ rows, ...environment }: TortureReport): string {
  const head = JSON.stringify(environment, null, 2).replace(/\n\}$/, ",");
  const lines = rows.map((row) => JSON.stringify(row, roundNumber));
  return `${head}\n  "rows": [\n${lines.join(",\n")}\n  ]\n}\n`;
}

/** Tenths of a millisecond are below what the machine measures. */
function roundNumber(_: string, value: unknown): unknown {
  return typeof value === "number" ? Math.round(value * 10) / 10 : value;
}
