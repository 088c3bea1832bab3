/** Bars of one figure as an SVG, the best first: ours in colour, rivals grey, baselines as outlines. */

import type { BarChart, Row } from "../harness/bench-case.ts";
import { roundFigure } from "../harness/report.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio } from "../harness/stats.ts";
import { renderLine, renderPicture, renderText, round } from "../harness/svg.ts";
import type { Versions } from "../harness/versions.ts";
import type { ContestantKind } from "./contestants.ts";
import { kindOf, labelOf } from "./contestants.ts";

export interface Bar {
  /** As in the table, without the chart's prefix. */
  readonly contestant: string;
  readonly label: string;
  readonly kind: ContestantKind;
  readonly figure: Spread;
}

const [WIDTH, LEFT, PLOT_WIDTH, TOP, STEP, THICKNESS, BOTTOM] = [760, 252, 300, 66, 28, 18, 10];
/** A bar that is so many times as long as our shortest one is cut, where a short bar is a good one. */
const MAX_LENGTH = 12;
const CUT_WIDTH = 6;
/** In characters of the usual size. */
const MAX_LABEL = 30;

/** The bars of a chart, the best first. */
export function selectBars({ column, better, prefix = "" }: BarChart, rows: readonly Row[], versions: Versions): Bar[] {
  const sign = better === "more" ? -1 : 1;
  return rows
    .flatMap(({ contestant, figures }): Bar[] => {
      const figure = figures[column];
      if (figure === undefined || !contestant.startsWith(prefix)) return [];
      const name = contestant.slice(prefix.length);
      return [{ contestant: name, label: labelOf(name, versions), kind: kindOf(name), figure }];
    })
    .sort((a, b) => sign * (a.figure.median - b.figure.median));
}

/** The best rival, or else the best baseline. */
export function findReference(bars: readonly Bar[]): Bar | null {
  return bars.find(({ kind }) => kind === "rival") ?? bars.find(({ kind }) => kind === "baseline") ?? null;
}

export function renderBarChart({ title, column, better }: BarChart, bars: readonly Bar[]): string {
  const reference = findReference(bars);
  const hasRatios = reference !== null && reference.figure.median > 0;
  const scale = PLOT_WIDTH / maxLength(bars, better);
  const height = TOP + bars.length * STEP + BOTTOM;
  const subtitle = `${better === "more" ? "longer" : "shorter"} is better; thin lines: least to most of all rounds`;
  const content = [
    renderText(16, 26, title, { size: 15, isBold: true }),
    renderText(16, 46, subtitle, { className: "muted", size: 12 }),
  ];
  if (hasRatios) {
    const header = `times ${reference.label}`;
    content.push(renderText(WIDTH - 16, 46, header, { anchor: "end", className: "muted", size: 12 }));
  }
  for (const [index, bar] of bars.entries()) {
    const y = TOP + index * STEP;
    const isOurs = bar.kind === "holdfast";
    const { end, shapes } = renderBar(bar, y, scale);
    content.push(
      renderText(LEFT - 10, y + 14, bar.label, { anchor: "end", isBold: isOurs, ...smallIfLong(bar.label) }),
      ...shapes,
      renderText(end + 8, y + 14, formatFigure(column, bar.figure.median), { isBold: isOurs }),
    );
    if (hasRatios) {
      const ratio = formatRatio(ratioOf(bar.figure, reference.figure));
      content.push(renderText(WIDTH - 16, y + 14, ratio, { anchor: "end", isBold: isOurs }));
    }
  }
  return renderPicture(WIDTH, height, title, content);
}

/** Round by round, as the tables have it; by the medians if the rounds are not known. */
function ratioOf(figure: Spread, reference: Spread): number {
  const isComparable = figure.rounds.length > 0 && figure.rounds.length === reference.rounds.length;
  return isComparable ? computeRatio(figure.rounds, reference.rounds).median : figure.median / reference.median;
}

/** "401 µs", "1.28 ms", "4,679/s", "9.1 %". */
export function formatFigure(column: string, figure: number): string {
  if (/\bus\b/.test(column)) return figure >= 1_000 ? `${roundFigure(figure / 1_000)} ms` : `${roundFigure(figure)} µs`;
  if (/\bms\b/.test(column)) return `${roundFigure(figure)} ms`;
  if (column.endsWith("/s")) return `${roundFigure(figure)}/s`;
  return column.endsWith("%") ? `${roundFigure(figure)} %` : roundFigure(figure);
}

function formatRatio(ratio: number): string {
  return `${ratio < 0.1 ? Number(ratio.toPrecision(1)) : roundFigure(ratio)}×`;
}

/** A long label would begin outside of the picture. */
function smallIfLong(label: string): { readonly size?: number } {
  return label.length > MAX_LABEL ? { size: 11 } : {};
}

/** In the figure's unit. */
function maxLength(bars: readonly Bar[], better: BarChart["better"]): number {
  const longest = Math.max(...bars.map(({ figure }) => figure.median), Number.MIN_VALUE);
  const ours = Math.min(...bars.filter(({ kind }) => kind === "holdfast").map(({ figure }) => figure.median));
  return better === "less" && ours > 0 ? Math.min(longest, ours * MAX_LENGTH) : longest;
}

function renderBar(
  { kind, figure }: Bar,
  y: number,
  scale: number,
): { readonly end: number; readonly shapes: readonly string[] } {
  const toWidth = (value: number): number => Math.min(PLOT_WIDTH, Math.max(0, value * scale));
  const width = Math.max(1, toWidth(figure.median));
  const isCut = figure.median * scale > PLOT_WIDTH * 1.001;
  const shapes = [`<rect class="${kind}" x="${LEFT}" y="${y}" width="${round(width)}" height="${THICKNESS}" rx="2"/>`];
  if (isCut) {
    const [x, bottom] = [LEFT + PLOT_WIDTH - 4 * CUT_WIDTH, y + THICKNESS + 1];
    const points = `${x},${bottom} ${x + CUT_WIDTH},${y - 1} ${x + 2 * CUT_WIDTH},${y - 1} ${x + CUT_WIDTH},${bottom}`;
    return { end: LEFT + PLOT_WIDTH, shapes: [...shapes, `<polygon class="background" points="${points}"/>`] };
  }
  const [low, high] = [toWidth(figure.min), toWidth(figure.max)];
  const middle = y + THICKNESS / 2;
  if (high - low >= 1) shapes.push(renderLine(LEFT + low, middle, LEFT + high, middle, "spread"));
  return { end: LEFT + Math.max(width, high), shapes };
}
