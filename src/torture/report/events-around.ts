/** The events around a violation that explain it: of its operations, of others on its key, and of faults. */

import type { Violation } from "../checker.ts";
import type { HistoryEvent } from "../history.ts";
import type { History, OperationRecord } from "../operations.ts";
import { operationId } from "../operations.ts";

export type TimedEvent = Exclude<HistoryEvent, { event: "run" }>;

const EVENTS_BEFORE = 10;
const EVENTS_AFTER = 10;
const MICROS_PER_MS = 1_000;
/** The longest wait and the longest work of an operation lie within this. */
const LEASES_AROUND = 10;
/** Of operations that are not concerned: what shows that they hold, or do not. */
const TELLING: ReadonlySet<string> = new Set([
  ...["granted", "lost", "releasing", "released", "unknown", "enter", "write", "kernel", "unlocked"],
]);

/**
 * For each violation twenty events, by time: ten before, ten from the violation on. All are found in one pass, since a long
 * history is too large for memory.
 * @param byId the operations of the history
 */
export function eventsAround(
  violations: readonly Violation[],
  events: Iterable<HistoryEvent>,
  history: History,
  byId: ReadonlyMap<string, OperationRecord>,
): TimedEvent[][] {
  const windows = violations.map((violation) => ({
    ...violation,
    concerned: new Set(violation.operations),
    telling: [] as TimedEvent[],
  }));
  if (windows.length === 0) return [];
  for (const event of events) {
    if (event.event === "run") continue;
    for (const { at, key, concerned, telling } of windows)
      if (isNear(event.at, at, history) && isTelling(event, key, concerned, byId)) telling.push(event);
  }
  return windows.map(({ at, telling }) => closestTo(at, telling));
}

function closestTo(at: number, near: readonly TimedEvent[]): TimedEvent[] {
  const telling = dropRepeatedAnswers(near.toSorted((a, b) => a.at - b.at));
  const index = telling.findIndex((event) => event.at >= at);
  const middle = index < 0 ? telling.length : index;
  return telling.slice(Math.max(0, middle - EVENTS_BEFORE), middle + EVENTS_AFTER);
}

function isNear(eventAt: number, at: number, { header }: History): boolean {
  return Math.abs(eventAt - at) <= LEASES_AROUND * header.ttlMs * MICROS_PER_MS;
}

function isTelling(
  event: TimedEvent,
  key: string | null,
  concerned: ReadonlySet<string>,
  byId: ReadonlyMap<string, OperationRecord>,
): boolean {
  if (!("op" in event)) return event.event !== "bystander" && event.event !== "unsupported";
  const id = operationId(event);
  if (concerned.has(id)) return true;
  if (!TELLING.has(event.event)) return false;
  if ("key" in event) return event.key === key;
  return key === null || byId.get(id)?.keys.includes(key) === true;
}

/** A holder answers every few milliseconds: only an answer that differs from the one before it tells something. */
function dropRepeatedAnswers(events: readonly TimedEvent[]): TimedEvent[] {
  const answers = new Map<string, boolean>();
  return events.filter((event) => {
    if (event.event !== "asked") return true;
    const id = operationId(event);
    const isHeld = event.leftMs !== 0;
    const isNew = answers.get(id) !== isHeld;
    answers.set(id, isHeld);
    return isNew;
  });
}
