/** Where in time the reports draw an operation, and in which lane. Times in microseconds since the start of the run. */

import type { FaultRecord, History, OperationRecord, WorkerRecord } from "../operations.ts";
import { beliefOf } from "../operations.ts";

export interface Span {
  readonly from: number;
  readonly to: number;
}

/** An operation from its request to its end. */
export interface OperationSpan extends Span {
  readonly record: OperationRecord;
  /** Null: it was never granted. */
  readonly grantedAt: number | null;
  /** When it certainly believed that it held; null: never. */
  readonly held: Span | null;
}

function spanOf(record: OperationRecord, { workers, endedAt }: History): OperationSpan {
  const { invokedAt, grantedAt, releasedAt, saidUntil } = record;
  const worker = workers.get(record.worker);
  const belief = beliefOf(record, workers);
  const held = belief === null || belief.to <= belief.from ? null : belief;
  // a lease goes on after the death of its holder
  const unreleased = grantedAt === null ? worker?.endedAt : Math.max(saidUntil ?? grantedAt, held?.to ?? 0);
  const to = releasedAt ?? record.endedAt ?? unreleased ?? endedAt;
  return { record, from: invokedAt, to: Math.max(to, invokedAt), grantedAt, held };
}

/** A history with the spans of all its operations: each picture looks through them. */
export interface DrawableHistory {
  readonly history: History;
  readonly spans: readonly OperationSpan[];
}

export function toDrawable(history: History): DrawableHistory {
  return { history, spans: history.operations.map((record) => spanOf(record, history)) };
}

export function overlaps(a: Span, b: Span): boolean {
  return a.from <= b.to && a.to >= b.from;
}

/** The whole run. */
export function spanOfRun({ endedAt }: History): Span {
  return { from: 0, to: Math.max(endedAt, 1) };
}

/** A fault that is not repaired at the end of a history lasts until that. */
export function spanOfFault({ beganAt, endedAt }: FaultRecord, history: History): Span {
  return { from: beganAt, to: Math.min(endedAt, history.endedAt) };
}

/** Spans in lanes, in the order of their beginnings: none overlaps another one in its lane. */
export function assignLanes<T extends Span>(spans: readonly T[]): T[][] {
  const lanes: T[][] = [];
  for (const span of spans.toSorted((a, b) => a.from - b.from)) {
    const lane = lanes.find((one) => (one.at(-1) as T).to < span.from);
    if (lane === undefined) lanes.push([span]);
    else lane.push(span);
  }
  return lanes;
}

/** The place of each worker: one that was killed leaves it to the next that starts. */
export function assignPlaces(workers: ReadonlyMap<number, WorkerRecord>, count: number): Map<number, number> {
  const places = new Map<number, number>();
  const ended = [...workers.values()]
    .filter(({ endedAt }) => endedAt !== null)
    .sort((a, b) => (a.endedAt as number) - (b.endedAt as number));
  for (const worker of workers.keys()) {
    const left = places.size < count ? undefined : ended.shift();
    places.set(worker, left === undefined ? places.size : (places.get(left.worker) ?? places.size));
  }
  return places;
}

/** The keys of a history, in their order. */
export function listKeys({ operations }: History): string[] {
  const keys = new Set<string>();
  for (const operation of operations) for (const key of operation.keys) keys.add(key);
  return [...keys].sort();
}

/** The fault during which most operations of the workers that it struck were under way; null: there was none. */
export function busiestFault(history: History, spans: readonly OperationSpan[]): FaultRecord | null {
  const byWorker = new Map<number, OperationSpan[]>();
  for (const span of spans) {
    const ofWorker = byWorker.get(span.record.worker) ?? [];
    byWorker.set(span.record.worker, ofWorker);
    ofWorker.push(span);
  }
  const counters = new Map([...byWorker].map(([worker, ofWorker]) => [worker, createOverlapCounter(ofWorker)]));
  let busiest: FaultRecord | null = null;
  let most = 0;
  for (const fault of history.faults) {
    const span = spanOfFault(fault, history);
    const struck = fault.workers ?? [...counters.keys()];
    const count = struck.reduce((sum, worker) => sum + (counters.get(worker)?.(span) ?? 0), 0);
    if (count > most) {
      most = count;
      busiest = fault;
    }
  }
  return busiest;
}

/** Counts the spans that overlap another one: those that have begun at its end, without those that were over before it. */
function createOverlapCounter(spans: readonly Span[]): (span: Span) => number {
  const begins = spans.map(({ from }) => from).sort((a, b) => a - b);
  const ends = spans.map(({ to }) => to).sort((a, b) => a - b);
  return ({ from, to }) => countBelow(begins, to + 1) - countBelow(ends, from);
}

/** How many of the sorted whole numbers are below a limit. */
function countBelow(sorted: readonly number[], limit: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
