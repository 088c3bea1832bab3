/**
 * What was measured last of each case: docs/results/bench.json, of which the tables and the page are made. A run that is kept
 * replaces its own cases, so cases may be of different runs; each knows its own.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { CaseReport, Report, SavedCase } from "../harness/report.ts";

const RESULTS_FILE = "docs/results/bench.json";
const VERSION = 1;
/** As many as any table shows, and some more. */
const SIGNIFICANT_DIGITS = 5;

interface SavedResults {
  readonly version: number;
  readonly cases: readonly SavedCase[];
}

export function readSavedCases(file: string = RESULTS_FILE): readonly SavedCase[] {
  if (!existsSync(file)) return [];
  const { version, cases } = JSON.parse(readFileSync(file, "utf8")) as SavedResults;
  if (version !== VERSION) throw new Error(`${file} has version ${version}; this bench knows ${VERSION}`);
  return cases;
}

/** What one run found, by its file in bench/results. */
export function readRun(file: string): readonly SavedCase[] {
  return toSavedCases(JSON.parse(readFileSync(file, "utf8")) as Report);
}

export function toSavedCases({ cases, ...environment }: Report): readonly SavedCase[] {
  return cases.map((caseReport: CaseReport) => ({ ...caseReport, environment }));
}

/** A case of the later ones takes the place of its earlier one. @param names of all cases there are, in their order */
export function mergeCases(
  saved: readonly SavedCase[],
  later: readonly SavedCase[],
  names: readonly string[],
): readonly SavedCase[] {
  const byName = new Map([...saved, ...later].map((savedCase) => [savedCase.name, savedCase]));
  return names.flatMap((name) => byName.get(name) ?? []);
}

/** A case a line, so that a change shows which one was measured again. */
export function writeSavedCases(cases: readonly SavedCase[], file: string = RESULTS_FILE): void {
  mkdirSync(dirname(file), { recursive: true });
  const lines = cases.map((savedCase) => JSON.stringify(savedCase, shorten)).join(",\n");
  writeFileSync(file, `{"version":${VERSION},"cases":[\n${lines}\n]}\n`);
}

function shorten(_key: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(SIGNIFICANT_DIGITS)) : value;
}
