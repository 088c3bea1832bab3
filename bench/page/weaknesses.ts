/** What the page says that Holdfast is worse at: goals that are missed, and charts in which a rival is ahead. */

import type { BenchCase } from "../harness/bench-case.ts";
import type { SavedCase } from "../harness/report.ts";
import { formatSpread, roundFigure } from "../harness/report.ts";
import { findReference, formatFigure, selectBars } from "./bar-chart.ts";

export interface Weakness {
  /** The goal and what was measured; or who is ahead, and by how much. */
  readonly finding: string;
  readonly reason: string;
}

/** Rates of a rival that is ahead by less are the same. */
const NOISE = 0.03;
const NO_REASON = "Not explained yet.";

export function findWeaknesses(benchCase: BenchCase, saved: SavedCase): Weakness[] {
  const reasonOf = (name: string): string => benchCase.reasons?.[name] ?? benchCase.reasons?.["*"] ?? NO_REASON;
  const missed = saved.checks
    .filter(({ kind, met }) => kind === "goal" && !met)
    .map(({ what, measured, sense, bound }) => ({
      finding: `Goal: ${what} ${sense} ${roundFigure(bound)}, measured ${formatSpread(measured)}`,
      reason: reasonOf(what),
    }));
  return [...missed, ...findLeads(benchCase, saved, reasonOf)];
}

function findLeads(benchCase: BenchCase, saved: SavedCase, reasonOf: (name: string) => string): Weakness[] {
  return (benchCase.page?.charts ?? []).flatMap((chart) => {
    const { column, better, prefix = "" } = chart;
    const bars = selectBars(chart, saved.rows, saved.environment.versions);
    const best = findReference(bars);
    if (best?.kind !== "rival") return [];
    return bars
      .filter(({ kind }) => kind === "holdfast")
      .flatMap(({ contestant, label, figure }) => {
        const [ours, theirs] = [figure.median, best.figure.median];
        const isBehind = better === "more" ? ours < theirs * (1 - NOISE) : ours > theirs * (1 + NOISE);
        if (!isBehind) return [];
        const figures = `${formatFigure(column, theirs)} against ${formatFigure(column, ours)} of ${label}`;
        return { finding: `${prefix}${best.label} has ${figures} (${column})`, reason: reasonOf(contestant) };
      });
  });
}
