/** Keeps results in docs/results, and writes what is made of them: the tables of the groups, docs/benchmarks.md and its pictures. */

import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { BenchCase } from "../harness/bench-case.ts";
import type { SavedCase } from "../harness/report.ts";
import { renderMarkdown } from "../harness/report.ts";
import { CHARTS_FOLDER, PAGE_FILE, renderPage } from "./page.ts";
import { mergeCases, readSavedCases, writeSavedCases } from "./saved-results.ts";

const TABLES = "docs/results";
/** Cases whose names begin so have a table of their own, and are chosen together by this name. */
export const GROUPS: readonly string[] = ["cold", "redis", "sql", "zookeeper"];

export function publish(cases: readonly BenchCase[], later: readonly SavedCase[]): void {
  const names = cases.map(({ name }) => name);
  writeSavedCases(mergeCases(readSavedCases(), later, names));
  // as they are in the file, with its digits
  const files = renderFiles(cases, readSavedCases());
  rmSync(CHARTS_FOLDER, { recursive: true, force: true });
  for (const [path, text] of files) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
}

/** Everything that is made of the saved results, by path. */
export function renderFiles(
  cases: readonly BenchCase[],
  savedCases: readonly SavedCase[],
): ReadonlyMap<string, string> {
  const { text, pictures } = renderPage(cases, savedCases);
  const tables = ["", ...GROUPS].flatMap((group): [string, string][] => {
    const own = savedCases.filter((saved) => findGroup(saved) === group);
    const name = group === "" ? "bench.md" : `bench-${group}.md`;
    return own.length === 0 ? [] : [[join(TABLES, name), renderMarkdown(own)]];
  });
  return new Map([[PAGE_FILE, text], ...pictures, ...tables]);
}

/** Pictures that no case draws any more. */
export function findLeftoverCharts(files: ReadonlyMap<string, string>): string[] {
  return readdirSync(CHARTS_FOLDER)
    .map((name) => `${CHARTS_FOLDER}/${name}`)
    .filter((path) => !files.has(path));
}

/** The cases of those groups of which all cases were run, without an error. */
export function selectWholeGroups(cases: readonly BenchCase[], run: readonly SavedCase[]): readonly SavedCase[] {
  return run.filter((saved) => {
    const group = findGroup(saved);
    const own = run.filter((other) => findGroup(other) === group && other.error === undefined);
    return own.length === cases.filter((benchCase) => findGroup(benchCase) === group).length;
  });
}

function findGroup({ name }: Pick<BenchCase, "name">): string {
  return GROUPS.find((group) => name.startsWith(`${group}-`)) ?? "";
}
