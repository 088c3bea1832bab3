/** The entire run in one picture: a row for each kind of fault, and for each key a row for each place of a worker. */

import type { Violation } from "../checker.ts";
import type { History } from "../operations.ts";
import { formatDistance, formatSeconds } from "./format.ts";
import { escapeMarkup } from "./markup.ts";
import { drawAxis, drawFigure } from "./plot.ts";
import type { DrawableHistory, Span } from "./spans.ts";
import { assignPlaces, listKeys, spanOfFault, spanOfRun } from "./spans.ts";

/** So many steps of time can be told apart: what lies closer together becomes one bar, so that the size has a bound. */
const STEPS = 2_000;
/** More bars than this are merged, the closest first: each costs some twenty bytes of the page. */
const MAX_BARS = 5_000;
const FAULT_PX = 14;
const PLACE_PX = 6;
const GAP_PX = 6;

export function drawOverview(drawable: DrawableHistory, violations: readonly Violation[]): string {
  const { history } = drawable;
  const run = spanOfRun(history);
  const scale: Scale = (at) => Math.round((at / run.to) * STEPS);
  const faults = groupFaults(history);
  const keys = listKeys(history);
  const heightOfKey = history.header.workers * PLACE_PX + GAP_PX;
  const top = faults.size * FAULT_PX;
  const height = top + keys.length * heightOfKey;
  const holds = new Map(
    [...collectHolds(drawable)].map(([key, byPlace]) => [key, byPlace.map((spans) => toBars(spans, scale))]),
  );
  const leastGap = findLeastGap([...holds.values()].flat());

  const shapes: string[] = [];
  shapes.push(drawPath("band", toBars([...faults.values()].flat(), scale), 0, height));
  for (const [index, spans] of [...faults.values()].entries())
    shapes.push(drawPath("fault", toBars(spans, scale), index * FAULT_PX + 2, FAULT_PX - 4));
  for (const [index, key] of keys.entries()) {
    const y = top + index * heightOfKey + GAP_PX / 2;
    for (const [place, bars] of holds.get(key)?.entries() ?? [])
      shapes.push(drawPath("held", mergeBars(bars, leastGap), y + place * PLACE_PX, PLACE_PX - 1));
  }
  shapes.push(drawViolations(violations, keys, scale, { top, height, heightOfKey }));
  const labels = [
    ...[...faults.keys()].map((name) => ({ text: name, px: FAULT_PX })),
    ...keys.map((key) => ({ text: key, px: heightOfKey })),
  ];
  const shortest = formatDistance((run.to / STEPS) * Math.max(leastGap, 1));
  const note = `<p class="muted">Holds with less than ${shortest} between them are drawn as one.</p>`;
  const figure = drawFigure({
    labels,
    height,
    title: `The entire run: ${faults.size} kinds of faults, ${keys.length} keys, ${violations.length} violations`,
    plot: `<svg width="100%" height="${height}" viewBox="0 0 ${STEPS} ${height}" preserveAspectRatio="none">${shapes.join("")}</svg>`,
    axis: drawAxis(run, formatSeconds),
    isWide: false,
  });
  return figure + note;
}

function groupFaults(history: History): Map<string, Span[]> {
  const byName = new Map<string, Span[]>();
  for (const fault of history.faults) {
    const spans = byName.get(fault.fault) ?? [];
    byName.set(fault.fault, spans);
    spans.push(spanOfFault(fault, history));
  }
  return byName;
}

/** By key, then by place: when it was held. */
function collectHolds({ history, spans }: DrawableHistory): Map<string, Span[][]> {
  const places = assignPlaces(history.workers, history.header.workers);
  const holds = new Map<string, Span[][]>();
  for (const { record, held } of spans) {
    if (held === null) continue;
    for (const key of record.keys) {
      const ofKey = holds.get(key) ?? Array.from({ length: history.header.workers }, () => []);
      holds.set(key, ofKey);
      const place = (places.get(record.worker) ?? 0) % history.header.workers;
      ofKey[place]?.push(held);
    }
  }
  return holds;
}

type Scale = (at: number) => number;
/** A span in steps of the picture. */
type Bar = readonly [from: number, to: number];

/** Spans that touch are one bar. */
function toBars(spans: readonly Span[], scale: Scale): Bar[] {
  const bars = spans
    .toSorted((a, b) => a.from - b.from)
    .map(({ from, to }): Bar => [scale(from), Math.max(scale(to), scale(from) + 1)]);
  return mergeBars(bars, 0);
}

/** Bars with at most so many steps between them are one. @param bars in the order of their beginnings */
function mergeBars(bars: readonly Bar[], gap: number): Bar[] {
  const merged: Bar[] = [];
  for (const [from, to] of bars) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last[1] + gap) merged[merged.length - 1] = [last[0], Math.max(last[1], to)];
    else merged.push([from, to]);
  }
  return merged;
}

/** How far apart the bars of all rows must be at least, so that they are not too many. */
function findLeastGap(rows: readonly (readonly Bar[])[]): number {
  let gap = 0;
  while (rows.reduce((sum, bars) => sum + mergeBars(bars, gap).length, 0) > MAX_BARS) gap++;
  return gap;
}

/** All bars as one path. */
function drawPath(name: string, bars: readonly Bar[], y: number, height: number): string {
  const commands = bars.map(([from, to]) => `M${from} ${y}H${to}V${y + height}H${from}Z`);
  return commands.length === 0 ? "" : `<path class="${name}" d="${commands.join("")}"/>`;
}

/** A line through all of the picture, and a mark on the key. */
function drawViolations(
  violations: readonly Violation[],
  keys: readonly string[],
  scale: Scale,
  { top, height, heightOfKey }: { readonly top: number; readonly height: number; readonly heightOfKey: number },
): string {
  const drawn = new Set<string>();
  for (const { at, key, invariant } of violations) {
    const x = scale(at);
    const index = key === null ? -1 : keys.indexOf(key);
    const y = index < 0 ? 0 : top + index * heightOfKey;
    const size = index < 0 ? height : heightOfKey;
    const title = `<title>${escapeMarkup(`${formatSeconds(at)}: ${invariant}`)}</title>`;
    drawn.add(`<path class="violation" d="M${x} ${y}h4v${size}h-4Z">${title}</path>`);
    // more than this cannot be told apart
    if (drawn.size >= STEPS) break;
  }
  return [...drawn].join("");
}
