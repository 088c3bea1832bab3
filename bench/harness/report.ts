/** The findings of a run, as they are shown on the terminal. */

import type { BenchCase, Check, Findings } from "./bench-case.ts";
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

/** Gates that do not hold, cases that could not be run. */
export function failedGates({ cases }: Pick<Report, "cases">): string[] {
  return cases.flatMap(({ name, checks, error }) => [
    ...(error === undefined ? [] : [`${name}: ${error}`]),
    ...checks.filter(({ kind, met }) => kind === "gate" && !met).map((check) => `${name}: ${renderCheck(check)}`),
  ]);
}

/** For the terminal. */
export function renderLines({ title, rows, checks, error, seconds }: CaseReport): string[] {
  return [
    `${title} (${roundFigure(Math.round(seconds))} s)`,
    ...rows.map(({ name, figures }) => {
      const cells = Object.entries(figures).map(([name, spread]) => `${name} ${formatSpread(spread)}`);
      return `  ${name.padEnd(22)} ${cells.join("; ")}`;
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
