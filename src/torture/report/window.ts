/** A window of the run in detail: faults as bands, and in the lanes of each worker its operations, with their tokens. */

import type { FaultRecord } from "../operations.ts";
import { operationId } from "../operations.ts";
import { formatDistance, formatSeconds } from "./format.ts";
import { escapeMarkup } from "./markup.ts";
import type { Figure } from "./plot.ts";
import { drawAxis, drawFigure } from "./plot.ts";
import type { DrawableHistory, OperationSpan, Span } from "./spans.ts";
import { assignLanes, overlaps, spanOfFault } from "./spans.ts";

export interface WindowOptions {
  readonly title: string;
  readonly window: Span;
  readonly keys: readonly string[];
  /** Marked red, as "worker/op". */
  readonly concerned: readonly string[];
  /** A line across; null: none. */
  readonly markAt: number | null;
}

const LANE_PX = 16;
const BAR_PX = 11;
const WAIT_PX = 3;
/** A token is written where there is so much room until the next bar, in percent. */
const TOKEN_ROOM = 4.5;
/** A longer token is shown by its end, in which tokens differ. */
const TOKEN_CHARACTERS = 5;

type Row = { readonly key: string; readonly worker: number; readonly lane: readonly OperationSpan[] };
type Scale = (at: number) => number;

export function drawWindow({ history, spans }: DrawableHistory, options: WindowOptions): string {
  const { title, window, keys, markAt } = options;
  const scale: Scale = (at) =>
    ((Math.min(Math.max(at, window.from), window.to) - window.from) / (window.to - window.from)) * 100;
  const labels: Figure["labels"][number][] = [];
  const shapes: string[] = [];
  const faults = history.faults
    .map((record) => ({ ...spanOfFault(record, history), record }))
    .filter((span) => overlaps(span, window));
  const faultLanes = assignLanes(faults);
  const rows = collectRows(spans, window, keys);
  const height = (faultLanes.length + rows.length + new Set(rows.map(({ key }) => key)).size) * LANE_PX;

  for (const { from, to } of faults) shapes.push(drawRect("band", scale, { from, to }, 0, height));
  for (const lane of faultLanes) {
    const y = labels.length * LANE_PX;
    labels.push({ text: labels.length === 0 ? "faults" : "", px: LANE_PX });
    for (const [index, span] of lane.entries())
      shapes.push(drawFault(span.record, span, scale, y, lane[index + 1]?.from ?? window.to));
  }
  for (const [index, { key, worker, lane }] of rows.entries()) {
    const previous = rows[index - 1];
    if (previous?.key !== key) labels.push({ text: `key ${key}`, px: LANE_PX, isHead: true });
    const y = labels.length * LANE_PX;
    const isSame = previous?.key === key && previous.worker === worker;
    labels.push({ text: isSame ? "" : `worker ${worker}`, px: LANE_PX });
    for (const fault of faults.filter(({ record }) => record.workers?.includes(worker)))
      shapes.push(drawRect("struck", scale, fault, y, LANE_PX));
    for (const [place, span] of lane.entries())
      shapes.push(drawOperation(span, key, lane[place + 1], { scale, y, options }));
  }
  if (markAt !== null) shapes.push(drawMark(scale(markAt), height));
  return drawFigure({
    title,
    labels,
    height,
    plot: `<svg width="100%" height="${height}">${shapes.join("\n")}</svg>`,
    axis: drawAxis(window, formatSeconds),
    isWide: true,
  });
}

/** More operations than this make a picture that is too full to read. */
const MAX_DRAWN = 600;
const LEAST_REACH = 1_000;

/** The window around a time that reaches this far before and after it, or less if it would show too many operations. */
export function fitWindow(
  { spans }: DrawableHistory,
  at: number,
  longestReach: number,
  keys: readonly string[],
): Span & { readonly reach: number } {
  const shown = new Set(keys);
  const windowOf = (reach: number): Span => ({ from: Math.max(at - reach, 0), to: at + reach });
  const isTooFull = (window: Span): boolean =>
    spans.filter((span) => overlaps(span, window) && span.record.keys.some((key) => shown.has(key))).length > MAX_DRAWN;
  let reach = longestReach;
  while (reach > LEAST_REACH && isTooFull(windowOf(reach))) reach /= 2;
  return { ...windowOf(reach), reach };
}

function collectRows(all: readonly OperationSpan[], window: Span, keys: readonly string[]): Row[] {
  const shown = new Map(keys.map((key) => [key, new Map<number, OperationSpan[]>()]));
  for (const span of all) {
    if (!overlaps(span, window)) continue;
    const { record } = span;
    for (const key of record.keys) {
      const ofKey = shown.get(key);
      const spans = ofKey?.get(record.worker) ?? [];
      ofKey?.set(record.worker, spans);
      spans.push(span);
    }
  }
  return [...shown].flatMap(([key, ofKey]) =>
    [...ofKey]
      .sort(([a], [b]) => a - b)
      .flatMap(([worker, spans]) => assignLanes(spans).map((lane) => ({ key, worker, lane }))),
  );
}

function drawFault(fault: FaultRecord, span: Span, scale: Scale, y: number, nextAt: number): string {
  const workers = fault.workers === null ? "all workers" : `worker ${fault.workers.join(", ")}`;
  const text = `${fault.fault}: ${workers}`;
  const title = `<title>${escapeMarkup(`${text}, ${formatSeconds(span.from)} to ${formatSeconds(span.to)}`)}</title>`;
  const bar = drawRect("fault", scale, span, y + 2, LANE_PX - 4);
  return `<g>${title}${bar}${drawText(text, scale(span.from), scale(nextAt), y)}</g>`;
}

interface Place {
  readonly scale: Scale;
  readonly y: number;
  readonly options: WindowOptions;
}

function drawOperation(
  span: OperationSpan,
  key: string,
  next: OperationSpan | undefined,
  { scale, y, options }: Place,
): string {
  const { record, held, grantedAt } = span;
  const isConcerned = options.concerned.includes(operationId(record));
  const top = y + (LANE_PX - BAR_PX) / 2;
  const parts: string[] = [];
  const waitedUntil = grantedAt ?? span.to;
  parts.push(drawRect("wait", scale, { from: span.from, to: waitedUntil }, y + (LANE_PX - WAIT_PX) / 2, WAIT_PX));
  if (grantedAt !== null && held !== null) {
    const kind = record.permits === record.limit ? "held" : "shared";
    parts.push(drawRect(kind, scale, { from: Math.min(grantedAt, held.from), to: held.to }, top, BAR_PX));
  }
  const overAt = grantedAt === null ? null : (held?.to ?? grantedAt);
  if (overAt !== null && span.to > overAt)
    parts.push(drawRect("after", scale, { from: overAt, to: span.to }, top, BAR_PX));
  const token = record.tokens?.get(key);
  if (grantedAt !== null && token !== undefined && grantedAt <= options.window.to) {
    // in its bar, or behind it
    const from = scale(span.to) - scale(grantedAt) < TOKEN_ROOM ? scale(span.to) : scale(grantedAt);
    const room = next === undefined ? 100 : scale(next.from);
    parts.push(drawText(`${isConcerned ? "! " : ""}${shortenToken(token)}`, from, room, y));
  }
  const start = isConcerned ? '<g class="concerned">' : "<g>";
  return `${start}<title>${escapeMarkup(describe(span, key))}</title>${parts.join("")}</g>`;
}

function describe({ record, held, from, grantedAt, to }: OperationSpan, key: string): string {
  const token = record.tokens?.get(key);
  const parts = [
    `${operationId(record)} ${record.kind}: asked at ${formatSeconds(from)}`,
    grantedAt === null ? "not granted" : `granted at ${formatSeconds(grantedAt)}`,
    ...(token === undefined ? [] : [`token ${token}`]),
    ...(held === null ? [] : [`held for ${formatDistance(held.to - held.from)}`]),
    `over at ${formatSeconds(to)}`,
  ];
  return parts.join(", ");
}

function shortenToken(token: bigint): string {
  const text = token.toString();
  return text.length <= TOKEN_CHARACTERS ? text : `…${text.slice(1 - TOKEN_CHARACTERS)}`;
}

function drawRect(name: string, scale: Scale, { from, to }: Span, y: number, height: number): string {
  const x = scale(from);
  return `<rect class="${name}" x="${percent(x)}" y="${y}" width="${percent(scale(to) - x)}" height="${height}"/>`;
}

/** A text that ends where the next bar begins; none where there is no room. */
function drawText(text: string, from: number, to: number, y: number): string {
  if (to - from < TOKEN_ROOM) return "";
  const inner = `<text x="3" y="${LANE_PX - 4}">${escapeMarkup(text)}</text>`;
  return `<svg x="${percent(from)}" y="${y}" width="${percent(to - from)}" height="${LANE_PX}">${inner}</svg>`;
}

function drawMark(x: number, height: number): string {
  return `<line class="mark" x1="${percent(x)}" x2="${percent(x)}" y1="0" y2="${height}"/>`;
}

function percent(value: number): string {
  return `${Number(Math.max(value, 0).toFixed(3))}%`;
}
