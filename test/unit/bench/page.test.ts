// docs/benchmarks.md is what the bench makes of the saved results: figures that a person has typed are found here.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { CASES } from "../../../bench/cases/cases.ts";
import type { BarChart, Row } from "../../../bench/harness/bench-case.ts";
import { check } from "../../../bench/harness/bench-case.ts";
import type { SavedCase } from "../../../bench/harness/report.ts";
import { computeSpread } from "../../../bench/harness/stats.ts";
import { formatFigure, renderBarChart, selectBars } from "../../../bench/page/bar-chart.ts";
import { findLeftoverCharts, renderFiles, selectWholeGroups } from "../../../bench/page/publish.ts";
import { mergeCases, readSavedCases } from "../../../bench/page/saved-results.ts";
import { findWeaknesses } from "../../../bench/page/weaknesses.ts";

const CHART: BarChart = { title: "Pairs", column: "pairs/s", better: "more" };

function createRow(contestant: string, rate: number): Row {
  return { contestant, figures: { "pairs/s": computeSpread([rate]) } };
}

function createSaved(name: string, rows: readonly Row[] = [], checks: SavedCase["checks"] = []): SavedCase {
  const environment = {
    commit: "c0ffee",
    changed: false,
    date: "2026-01-01T00:00:00.000Z",
    node: "v20.0.0",
    machine: "a machine",
    versions: { "async-mutex": "0.5.0" },
    otherLoad: { median: 0, most: 0 },
  };
  return { name, title: name, about: "", seconds: 1, rows, checks, environment };
}

test("the page, its pictures and the tables are made of the saved results (`npm run bench -- --page` writes them)", () => {
  const files = renderFiles(CASES, readSavedCases());
  const stale = [...files].filter(([path, text]) => readFileSync(path, "utf8") !== text).map(([path]) => path);
  expect(stale).toEqual([]);
  expect(findLeftoverCharts(files)).toEqual([]);
});

test("every saved case is one that can be run", () => {
  const names = CASES.map(({ name }) => name);
  expect(readSavedCases().filter(({ name }) => !names.includes(name))).toEqual([]);
});

test("a run replaces the results of its own cases, and cases that are gone are dropped", () => {
  const saved = [createSaved("a"), createSaved("gone")];
  const later = { ...createSaved("b"), seconds: 2 };
  const merged = mergeCases(saved, [later, { ...createSaved("a"), seconds: 3 }], ["a", "b"]);
  expect(merged.map(({ name, seconds }) => [name, seconds])).toEqual([
    ["a", 3],
    ["b", 2],
  ]);
});

test("a run is kept only for groups of which every case was run to its end", () => {
  const cases = CASES.filter(({ name }) => /^(?:redis|zookeeper)-/.test(name));
  const run = cases.map(({ name }) => createSaved(name));
  const whole = selectWholeGroups(cases, run);
  expect(whole).toHaveLength(cases.length);
  const failed = run.map((saved) => (saved.name === "redis-wide" ? { ...saved, error: "failed" } : saved));
  expect(selectWholeGroups(cases, failed).some(({ name }) => name.startsWith("redis-"))).toBe(false);
  expect(selectWholeGroups(cases, failed).some(({ name }) => name.startsWith("zookeeper-"))).toBe(true);
});

test("bars stand in the order of their figures, and show the version of a rival", () => {
  const rows = [createRow("no lock", 5), createRow("async-mutex", 9), createRow("holdfast, memory", 7)];
  const bars = selectBars(CHART, rows, { "async-mutex": "0.5.0" });
  expect(bars.map(({ label, kind }) => [label, kind])).toEqual([
    ["async-mutex 0.5.0", "rival"],
    ["Holdfast", "holdfast"],
    ["no lock", "baseline"],
  ]);
  const picture = renderBarChart(CHART, bars);
  expect(picture).toContain("times async-mutex 0.5.0");
  expect(picture).toContain(">0.78×<");
  expect(picture).toContain("prefers-color-scheme:dark");
});

test("figures have the unit of their column", () => {
  expect(formatFigure("p50 us", 401)).toBe("401 µs");
  expect(formatFigure("p50 us", 1_278)).toBe("1.28 ms");
  expect(formatFigure("grants/s", 4_679)).toBe("4,679/s");
  expect(formatFigure("CPU %", 9.1)).toBe("9.1 %");
  expect(formatFigure("of the limit", 0.845)).toBe("0.85");
});

test("a goal that is missed and a rival that is ahead are told, each with its reason", () => {
  const rows = [
    createRow("async-mutex", 9),
    createRow("holdfast, memory", 7),
    createRow("holdfast, memory, cached", 8.9),
  ];
  const missed = check("goal", "rate", computeSpread([0.5]), "at least", 1);
  const met = check("goal", "other", computeSpread([2]), "at least", 1);
  const benchCase = {
    name: "a",
    title: "a",
    about: "",
    page: { theme: "A free lock", measures: "", charts: [CHART] },
    reasons: { rate: "because", "*": "so it is" },
    run: () => Promise.reject(new Error("is not run")),
  } as const;
  expect(findWeaknesses(benchCase, createSaved("a", rows, [missed, met]))).toEqual([
    { finding: "Goal: rate at least 1, measured 0.5", reason: "because" },
    { finding: "async-mutex 0.5.0 has 9/s against 7/s of Holdfast (pairs/s)", reason: "so it is" },
  ]);
});
