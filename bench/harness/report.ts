/** The findings as a table: on the terminal and, for saved results, in docs/results. */

import type { BenchCase, Check, Findings, Row } from "./bench-case.ts";
import type { Environment } from "./machine.ts";
import type { Spread } from "./stats.ts";

export interface CaseReport extends Pick<BenchCase, "name" | "title" | "about">, Findings {
  /** How long it took. */
  readonly seconds: number;
  /** Why it could not be run to its end. */
  readonly error?: string;
}

export interface Report extends Environment {
  readonly cases: readonly CaseReport[];
}

/** A case as it was measured last, and where. */
export interface SavedCase extends CaseReport {
  readonly environment: Environment;
}

/** Cores others kept busy, from which on rates are worth little. */
const BUSY_CORES = 0.5;
const BUSY_WARNING =
  "**The machine was busy with other work: gates, counts, bytes and the ratios of CPU stand; rates and times, and whether " +
  "their goals are met, mean little.** Run it again on a quiet one.";

/** Gates that do not hold, cases that could not be run. */
export function failedGates({ cases }: Pick<Report, "cases">): string[] {
  return cases.flatMap(({ name, checks, error }) => [
    ...(error === undefined ? [] : [`${name}: ${error}`]),
    ...checks.filter(({ kind, met }) => kind === "gate" && !met).map((check) => `${name}: ${renderCheck(check)}`),
  ]);
}

export function renderMarkdown(cases: readonly SavedCase[]): string {
  return `${[
    "# Bench",
    "",
    "<!-- Written by `npm run bench`. Do not edit: run it again. -->",
    "",
    "Rates are of one machine: read the ratios. Each figure is the median of " +
      `${describeRounds(maxRounds(cases))} (least to most) after warm-up, contestants taking turns within a round, each in processes of its ` +
      "own; a ratio is taken within each round. Gates make the command fail. A pair is one acquire and one release.",
    ...renderEnvironments(cases),
    "",
    "## Goals and gates",
    "",
    ...renderChecks(cases),
    ...cases.flatMap(renderSection),
  ].join("\n")}\n`;
}

/** Of the cases of one run together. */
function renderEnvironments(cases: readonly SavedCase[]): string[] {
  const runs = new Map(cases.map(({ environment }) => [environment.date, environment]));
  return [...runs].flatMap(([date, { commit, changed, node, machine, otherLoad }]) => {
    const names = cases.filter(({ environment }) => environment.date === date).map(({ name }) => name);
    return [
      "",
      ...(runs.size === 1 ? [] : [`${names.join(", ")}:`, ""]),
      `- commit ${commit}${changed ? ", with changes not committed" : ""}`,
      `- ${date}`,
      `- Node ${node}`,
      `- ${machine}`,
      `- cores kept busy by others just before a measurement: ${roundFigure(otherLoad.median)}, at most ${roundFigure(otherLoad.most)}`,
      ...(otherLoad.median < BUSY_CORES ? [] : ["", BUSY_WARNING]),
    ];
  });
}

/** A table with a line for each check. */
export function renderChecks(cases: readonly Pick<SavedCase, "title" | "checks">[]): string[] {
  return [
    "| case | | what | measured | wanted | |",
    "|---|---|---|---|---|---|",
    ...cases.flatMap(({ title, checks }) =>
      checks.map(
        (check) =>
          `| ${title} | ${check.kind} | ${check.what} | ${formatSpread(check.measured)} | ${check.sense} ${roundFigure(check.bound)} | ${renderVerdict(check)} |`,
      ),
    ),
  ];
}

/** Of old results only the medians are known. */
function describeRounds(rounds: number): string {
  return rounds > 1 ? `${rounds} rounds` : "several rounds";
}

/** Some figures are of one look only. */
export function maxRounds(cases: readonly Pick<CaseReport, "rows">[]): number {
  const spreads = cases.flatMap(({ rows }) => rows.flatMap(({ figures }) => Object.values(figures)));
  return Math.max(0, ...spreads.map(({ rounds }) => rounds.length));
}

function renderSection({ title, about, rows, error, plot }: CaseReport): string[] {
  const table = rows.length === 0 ? [] : ["", ...renderTable(rows)];
  const image = plot === undefined ? [] : ["", `![${plot.title}](${plot.name}.svg)`];
  return [
    "",
    `## ${title}`,
    "",
    about,
    ...(error === undefined ? [] : ["", `Could not be run: ${error}`]),
    ...table,
    ...image,
  ];
}

export function renderTable(rows: readonly Row[]): string[] {
  const columns = [...new Set(rows.flatMap(({ figures }) => Object.keys(figures)))];
  return [
    `| | ${columns.join(" | ")} |`,
    `|---|${columns.map(() => "---|").join("")}`,
    ...rows.map(({ contestant, figures }) => {
      const cells = columns.map((column) => (figures[column] === undefined ? "-" : formatSpread(figures[column])));
      return `| ${contestant} | ${cells.join(" | ")} |`;
    }),
  ];
}

/** For the terminal. */
export function renderLines({ title, rows, checks, error, seconds }: CaseReport): string[] {
  return [
    `${title} (${roundFigure(Math.round(seconds))} s)`,
    ...rows.map(({ contestant, figures }) => {
      const cells = Object.entries(figures).map(([name, spread]) => `${name} ${formatSpread(spread)}`);
      return `  ${contestant.padEnd(22)} ${cells.join("; ")}`;
    }),
    ...checks.map((check) => `  ${renderVerdict(check).padEnd(7)} ${renderCheck(check)}`),
    ...(error === undefined ? [] : [`  FAILED  ${error}`]),
  ];
}

function renderCheck({ kind, what, measured, sense, bound }: Check): string {
  return `${kind}: ${what} ${formatSpread(measured)}, wanted ${sense} ${roundFigure(bound)}`;
}

function renderVerdict({ kind, met }: Check): string {
  if (met) return "met";
  return kind === "gate" ? "FAILED" : "missed";
}

export function formatSpread({ median, min, max, rounds }: Spread): string {
  return rounds.length === 1
    ? roundFigure(median)
    : `${roundFigure(median)} (${roundFigure(min)}..${roundFigure(max)})`;
}

export function roundFigure(figure: number): string {
  const size = Math.abs(figure);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4;
  return figure.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}
