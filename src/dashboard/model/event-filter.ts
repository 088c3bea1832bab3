/** The filter of events, and the file of those that it leaves. */

import type { DashboardEvent } from "../../gateway/dashboard/view-types.ts";

/** Names a field: `kind:revoked`. */
const FIELD_TERM = /^(key|label|kind|tag):(.*)$/s;

/** The events that contain every word of the text in their keys, label, tag or kind, in any case. */
export function filterEvents(events: readonly DashboardEvent[], text: string): readonly DashboardEvent[] {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean).map(parseTerm);
  if (terms.length === 0) return events;
  return events.filter((event) => terms.every((term) => matches(event, term)));
}

interface Term {
  /** null: any of them. */
  readonly field: string | null;
  readonly wanted: string;
}

function parseTerm(word: string): Term {
  const [, field, wanted] = FIELD_TERM.exec(word) ?? [];
  return field === undefined || wanted === undefined ? { field: null, wanted: word } : { field, wanted };
}

function matches(event: DashboardEvent, { field, wanted }: Term): boolean {
  const { keys, label, kind, tag } = event;
  const texts: Readonly<Record<string, readonly string[]>> = { key: keys, label: [label], kind: [kind], tag: [tag] };
  const searched = field === null ? [...keys, label, kind, describeKind(kind), tag] : (texts[field] ?? []);
  return searched.some((value) => value.toLowerCase().includes(wanted));
}

const KIND_WORDS: ReadonlyMap<string, string> = new Map([
  ["waiting", "waits"],
  ["granted", "granted"],
  ["reclaimed", "held again"],
  ["released", "released"],
  ["withdrawn", "withdrawn"],
  ["expired", "lease expired"],
  ["disconnected", "disconnected"],
  ["revoked", "revoked"],
  ["maxHoldExceeded", "held too long"],
  ["removed", "removed"],
  ["ended", "ended"],
]);

/** The kind of an event in words; one that is not known as it is. */
export function describeKind(kind: string): string {
  return KIND_WORDS.get(kind) ?? kind;
}

/** What an event means for the state of its claim. */
export type EventTone = "held" | "waiting" | "lost" | "over";

const TONES: ReadonlyMap<string, EventTone> = new Map<string, EventTone>([
  ["waiting", "waiting"],
  ["granted", "held"],
  ["reclaimed", "held"],
  ["expired", "lost"],
  ["disconnected", "lost"],
  ["revoked", "lost"],
  ["maxHoldExceeded", "lost"],
  ["removed", "lost"],
]);

export function toneOf(kind: string): EventTone {
  return TONES.get(kind) ?? "over";
}

/** One JSON object on each line. */
export function formatNdjson(events: readonly DashboardEvent[]): string {
  return events.map((event) => `${JSON.stringify(event)}\n`).join("");
}
