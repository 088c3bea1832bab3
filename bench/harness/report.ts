/** The findings as a table: on the terminal and, for a whole run, in docs/results. */

import type { BenchCase, Check, Findings } from "./bench-case.ts";
import type { Environment } from "./machine.ts";
import type { Spread } from "./stats.ts";

export interface CaseReport extends Pick<BenchCase, "name" | "title" | "about">, Findings {
  /** Why it could not be run to its end. */
  readonly error?: string;
}

export interface Report extends Environment {
  readonly cases: readonly CaseReport[];
}

/** Cores others kept busy, from which on rates are worth little. */
const BUSY_CORES = 0.5;
const BUSY_WARNING =
  "**The machine was busy with other work: gates, counts, bytes and the ratios of CPU stand; rates and times, and whether " +
  "their goals are met, mean little.** Run it again on a quiet one.";

/** Gates that do not hold, cases that could not be run. */
export function failedGates({ cases }: Report): string[] {
  return cases.flatMap(({ name, checks, error }) => [
    ...(error === undefined ? [] : [`${name}: ${error}`]),
    ...checks.filter(({ kind, met }) => kind === "gate" && !met).map((check) => `${name}: ${renderCheck(check)}`),
  ]);
}

export function renderMarkdown(report: Report): string {
  const { commit, changed, date, node, machine, otherLoad, cases } = report;
  return `${[
    "# Bench",
    "",
    "<!-- Written by `npm run bench`. Do not edit: run it again. -->",
    "",
    "Rates are of one machine: read the ratios. Each figure is the median of " +
      `${maxRounds(report)} rounds (least to most) after warm-up, contestants taking turns within a round, each in processes of its ` +
      "own; a ratio is taken within each round. Gates make the command fail. A pair is one acquire and one release.",
    "",
    `- commit ${commit}${changed ? ", with changes not committed" : ""}`,
    `- ${date}`,
    `- Node ${node}`,
    `- ${machine}`,
    `- cores kept busy by others just before a measurement: ${roundFigure(otherLoad.median)}, at most ${roundFigure(otherLoad.most)}`,
    ...(otherLoad.median < BUSY_CORES ? [] : ["", BUSY_WARNING]),
    "",
    "## Goals and gates",
    "",
    "| case | | what | measured | wanted | |",
    "|---|---|---|---|---|---|",
    ...cases.flatMap(({ title, checks }) =>
      checks.map(
        (check) =>
          `| ${title} | ${check.kind} | ${check.what} | ${formatSpread(check.measured)} | ${check.sense} ${roundFigure(check.bound)} | ${renderVerdict(check)} |`,
      ),
    ),
    ...cases.flatMap(renderSection),
  ].join("\n")}\n`;
}

/** Some figures are of one look only. */
function maxRounds({ cases }: Report): number {
  const spreads = cases.flatMap(({ rows }) => rows.flatMap(({ figures }) => Object.values(figures)));
  return Math.max(0, ...spreads.map(({ rounds }) => rounds.length));
}

function renderSection({ title, about, rows, error, plot }: CaseReport): string[] {
  const columns = [...new Set(rows.flatMap(({ figures }) => Object.keys(figures)))];
  const table =
    rows.length === 0
      ? []
      : [
          "",
          `| | ${columns.join(" | ")} |`,
          `|---|${columns.map(() => "---|").join("")}`,
          ...rows.map(({ contestant, figures }) => {
            const cells = columns.map((column) =>
              figures[column] === undefined ? "-" : formatSpread(figures[column]),
            );
            return `| ${contestant} | ${cells.join(" | ")} |`;
          }),
        ];
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

/** For the terminal. */
export function renderLines({ title, rows, checks, error }: CaseReport): string[] {
  return [
    title,
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

function formatSpread({ median, min, max, rounds }: Spread): string {
  return rounds.length === 1
    ? roundFigure(median)
    : `${roundFigure(median)} (${roundFigure(min)}..${roundFigure(max)})`;
}

function roundFigure(figure: number): string {
  const size = Math.abs(figure);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4;
  return figure.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}
