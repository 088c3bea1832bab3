// docs/benchmarks.md is what the bench makes of docs/results.md: figures that a person has typed are found here.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { CASES } from "../../../bench/cases/cases.ts";
import type { BenchCase, Row } from "../../../bench/harness/bench-case.ts";
import type { CaseReport, Report } from "../../../bench/harness/report.ts";
import { computeSpread } from "../../../bench/harness/stats.ts";
import { renderPage } from "../../../bench/page/page.ts";
import type { Results } from "../../../bench/page/results.ts";
import { addRun, parseResults, renderResults } from "../../../bench/page/results.ts";

const NOTHING: Results = { versions: {}, cases: [], longRuns: "\nnone yet\n" };

function createCase(name: string, rest: Partial<BenchCase> = {}): BenchCase {
  const run = (): Promise<never> => Promise.reject(new Error("is not run"));
  return { name, title: `Title of ${name}`, about: "", headline: ["pairs/s"], run, ...rest };
}

function createRow(name: string, ...rates: readonly number[]): Row {
  return { name, figures: { "pairs/s": computeSpread(rates), "p50 us": computeSpread([1]) } };
}

function createRun(cases: readonly CaseReport[], date = "2026-01-01T00:00:00.000Z"): Report {
  const versions = { "async-mutex": "0.5.0" };
  const otherLoad = { median: 0, most: 0 };
  return { commit: "c0ffee", changed: false, date, node: "v20.0.0", machine: "a machine", versions, otherLoad, cases };
}

function createReport(name: string, rows: readonly Row[], error?: string): CaseReport {
  const { title, about } = createCase(name);
  return { name, title, about, seconds: 1, rows, checks: [], ...(error !== undefined && { error }) };
}

test("the page is made of the results, and these have the form that the bench writes (`npm run bench -- --page`)", () => {
  const text = readFileSync("docs/results.md", "utf8");
  const results = parseResults(text);
  expect(renderResults(results)).toBe(text);
  expect(readFileSync("docs/benchmarks.md", "utf8")).toBe(renderPage(CASES, results));
});

test("every result is of a case that can be run, and has its columns", () => {
  const { cases } = parseResults(readFileSync("docs/results.md", "utf8"));
  const known = cases.map(({ name }) => [name, CASES.find((benchCase) => benchCase.name === name)?.headline]);
  expect(cases.map(({ name, columns }) => [name, columns])).toEqual(known);
});

test("a run replaces the results of its own cases; those that failed keep theirs, and cases that are gone are dropped", () => {
  const [a, b, gone] = [createCase("a"), createCase("b"), createCase("gone")];
  const first = createRun(["a", "b", "gone"].map((name) => createReport(name, [createRow("holdfast", 1, 3, 2)])));
  const later = createRun(
    [createReport("a", [createRow("holdfast", 5)]), createReport("b", [], "failed")],
    "2026-02-02T00:00:00.000Z",
  );
  const results = addRun(addRun(NOTHING, first, [a, b, gone]), later, [a, b]);
  expect(results.cases.map(({ name, date, rows }) => [name, date, rows])).toEqual([
    ["a", "2026-02-02", [{ name: "holdfast", cells: ["5"] }]],
    ["b", "2026-01-01", [{ name: "holdfast", cells: ["2 (1..3)"] }]],
  ]);
  expect(parseResults(renderResults(results))).toEqual(results);
});

test("a rival that is ahead is named with its version and the reason, a baseline or one behind is not", () => {
  const benchCase = createCase("a", { reasons: { "holdfast, memory, cached": "because", "*": "so it is" } });
  const rows = [
    createRow("async-mutex", 9),
    createRow("no lock", 50),
    createRow("holdfast, memory", 7),
    createRow("holdfast, memory, cached", 4),
    createRow("holdfast, memory, using", 8.9),
  ];
  const page = renderPage([benchCase], addRun(NOTHING, createRun([createReport("a", rows)]), [benchCase]));
  expect(page.split("\n").filter((line) => line.startsWith("| [Title of a]"))).toEqual([
    "| [Title of a](results.md#title-of-a) | 9/s, async-mutex 0.5.0; 7/s, Holdfast | so it is |",
    "| [Title of a](results.md#title-of-a) | 9/s, async-mutex 0.5.0; 4/s, Holdfast, cached | because |",
  ]);
});
