/** The entire run in one picture: a row for each kind of fault, and for each key a row for each place of a worker. */

import type { Violation } from "../checker.ts";
import type { History } from "../operations.ts";
import { formatSeconds } from "./format.ts";
import { escapeMarkup } from "./markup.ts";
import { drawAxis, drawFigure } from "./plot.ts";
import type { DrawableHistory, Span } from "./spans.ts";
import { assignPlaces, listKeys, spanOfFault, spanOfRun } from "./spans.ts";

/** So many steps of time can be told apart: what lies closer together becomes one bar, so that the size has a bound. */
const STEPS = 2_000;
const FAULT_PX = 14;
const PLACE_PX = 6;
const GAP_PX = 6;

export function drawOverview(drawable: DrawableHistory, violations: readonly Violation[]): string {
  const { history } = drawable;
  const run = spanOfRun(history);
  const scale = (at: number): number => Math.round((at / run.to) * STEPS);
  const faults = groupFaults(history);
  const keys = listKeys(history);
  const heightOfKey = history.header.workers * PLACE_PX + GAP_PX;
  const top = faults.size * FAULT_PX;
  const height = top + keys.length * heightOfKey;
  const holds = collectHolds(drawable);

  const shapes: string[] = [];
  shapes.push(drawPath("band", [...faults.values()].flat(), scale, 0, height));
  for (const [index, spans] of [...faults.values()].entries())
    shapes.push(drawPath("fault", spans, scale, index * FAULT_PX + 2, FAULT_PX - 4));
  for (const [index, key] of keys.entries()) {
    const y = top + index * heightOfKey + GAP_PX / 2;
    for (const [place, spans] of holds.get(key)?.entries() ?? [])
      shapes.push(drawPath("held", spans, scale, y + place * PLACE_PX, PLACE_PX - 1));
  }
  shapes.push(drawViolations(violations, keys, (at) => scale(at), { top, height, heightOfKey }));
  const labels = [
    ...[...faults.keys()].map((name) => ({ text: name, px: FAULT_PX })),
    ...keys.map((key) => ({ text: key, px: heightOfKey })),
  ];
  return drawFigure({
    labels,
    height,
    title: `The entire run: ${faults.size} kinds of faults, ${keys.length} keys, ${violations.length} violations`,
    plot: `<svg width="100%" height="${height}" viewBox="0 0 ${STEPS} ${height}" preserveAspectRatio="none">${shapes.join("")}</svg>`,
    axis: drawAxis(run, formatSeconds),
    isWide: false,
  });
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

/** All spans as one path; those that touch are one rectangle. */
function drawPath(
  name: string,
  spans: readonly Span[],
  scale: (at: number) => number,
  y: number,
  height: number,
): string {
  const commands: string[] = [];
  let from = -1;
  let to = -1;
  const flush = (): void => {
    if (from >= 0) commands.push(`M${from} ${y}H${to}V${y + height}H${from}Z`);
  };
  for (const span of spans.toSorted((a, b) => a.from - b.from)) {
    const start = scale(span.from);
    const end = Math.max(scale(span.to), start + 1);
    if (from >= 0 && start <= to) {
      to = Math.max(to, end);
      continue;
    }
    flush();
    from = start;
    to = end;
  }
  flush();
  return commands.length === 0 ? "" : `<path class="${name}" d="${commands.join("")}"/>`;
}

/** A line through all of the picture, and a mark on the key. */
function drawViolations(
  violations: readonly Violation[],
  keys: readonly string[],
  scale: (at: number) => number,
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
