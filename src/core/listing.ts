/** What tools see of a table: by key, in each line from the front, then what stands in no line. */

import type { ClaimView, Hold, ListFilter } from "../spi/driver.ts";
import type { Entry } from "./entry.ts";
import type { Seat, SeatLine } from "./seats.ts";
import { standingOf } from "./standing.ts";
import type { Table } from "./table.ts";

/** Which claims are wanted. */
export interface ListQuery {
  readonly filter: ListFilter;
  readonly max: number;
  /** The tag of the last claim of the page before; one that nobody knows (any more) starts again. */
  readonly after?: string;
  /** May this key be shown? Of a claim only such keys are. Default: every key may. */
  readonly may?: (key: string) => boolean;
}

type Shows = (key: string) => boolean;
type TagOf = (id: string) => string;

/** Lines or claims looked at between two pauses; tags are dearer. */
const LOOKS = 1_000;
const TAGS = 100;

/** A page at once. The table must have been advanced to `now`. */
export function listTable(table: Table, tagOf: TagOf, query: ListQuery, now: number): ClaimView[] {
  const steps = listing(table, tagOf, query);
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value.map((entry) => viewOf(table, tagOf, entry, now, query.may));
}

/**
 * The entries of a page, in steps: the table may change between them, so a claim that moves may be missed or come twice.
 * Its cost grows with the keys there are, not with their order: nothing is sorted but what is given.
 * @param last the claim whose tag is query.after, if that is known; it may have gone meanwhile
 */
export function* listing(table: Table, tagOf: TagOf, query: ListQuery, last?: Entry): Generator<void, Entry[], void> {
  const { filter, max, after, may } = query;
  const matches: Shows =
    filter.key === undefined ? (key) => key.startsWith(filter.prefix) : (key) => key === filter.key;
  const shows: Shows = (key) => matches(key) && (may?.(key) ?? true);
  const start = last ?? (after === undefined ? null : yield* entryOf(table, tagOf, after));
  const found: Entry[] = [];
  const home = start === null ? null : homeOf(start, shows);
  const next = home === null ? null : behind(table, home);
  if (next !== null) walk(next.line, next, shows, max, found);
  if (filter.key !== undefined) {
    const line = home === null && shows(filter.key) ? table.mint.lines.get(filter.key) : undefined;
    if (line !== undefined) walk(line, line.seats.first, shows, max, found);
    return found;
  }
  if (start === null || home !== null) {
    let from = home?.line.key ?? "";
    while (found.length < max) {
      const lines = yield* smallest(table, from, shows, max);
      for (const line of lines) walk(line, line.seats.first, shows, max, found);
      if (lines.length < max) break;
      from = (lines.at(-1) as SeatLine).key;
    }
  }
  if (found.length < max) yield* homeless(table, home === null ? start : null, shows, max, found);
  return found;
}

/** A claim as tools see it; `may` leaves out keys. */
export function viewOf(table: Table, tagOf: TagOf, entry: Entry, now: number, may: Shows | undefined): ClaimView {
  const { id, ...claim } = entry.claim;
  // at least one is left: it was found by it
  const [first, ...others] = may === undefined ? claim.holds : claim.holds.filter(({ key }) => may(key));
  const holds = [first as Hold, ...others] as const;
  const answer = standingOf(entry, now, table.sessionMs);
  const held = entry.held ? { heldMs: now - entry.heldAt } : {};
  return { ...claim, holds, tag: tagOf(id), answer, ageMs: now - entry.placedAt, ...held };
}

function* entryOf(table: Table, tagOf: TagOf, tag: string): Generator<void, Entry | null, void> {
  let looks = 0;
  for (const entry of table.entries.walk()) {
    if (tagOf(entry.claim.id) === tag) return entry;
    if (++looks % TAGS === 0) yield;
  }
  return null;
}

/** Where a claim is listed: its first place in a line that is shown. A parked place stands in no line. */
function homeOf({ seats, parked }: Entry, shows: Shows): Seat | null {
  for (const seat of seats) if ((seat.admitted || !parked) && shows(seat.line.key)) return seat;
  return null;
}

/** The next one in its line; of a claim that has gone, the first that came after it. */
function behind(table: Table, { line, next, entry, arrival }: Seat): Seat | null {
  if (isThere(table, entry)) return next;
  let seat = table.mint.lines.get(line.key)?.seats.first ?? null;
  while (seat !== null && seat.arrival < arrival) seat = seat.next;
  return seat;
}

function isThere(table: Table, entry: Entry): boolean {
  return table.entries.get(entry.claim.id) === entry;
}

/** Adds those who are at home in this line, from that seat on. */
function walk(line: SeatLine, from: Seat | null, shows: Shows, max: number, found: Entry[]): void {
  for (let seat = from; seat !== null && found.length < max; seat = seat.next) {
    // whoever stands in a line that is shown has a home
    if ((homeOf(seat.entry, shows) as Seat).line === line) found.push(seat.entry);
  }
}

/** The first `most` lines behind a key that are shown and not empty, in order. */
function* smallest(table: Table, from: string, shows: Shows, most: number): Generator<void, SeatLine[], void> {
  let best: SeatLine[] = [];
  // once there are enough, only keys before this one are of interest
  let bound: string | undefined;
  let looks = 0;
  for (const line of table.mint.lines.walk()) {
    if (++looks % LOOKS === 0) yield;
    const { key } = line;
    if (line.seats.size === 0 || key <= from || (bound !== undefined && key >= bound) || !shows(key)) continue;
    best.push(line);
    if (best.length < 2 * most) continue;
    best = firstOf(best, most);
    bound = (best.at(-1) as SeatLine).key;
  }
  return firstOf(best, most);
}

function firstOf(lines: SeatLine[], most: number): SeatLine[] {
  return lines.sort((a, b) => (a.key < b.key ? -1 : 1)).slice(0, most);
}

/** Adds those who stand in no line that is shown, behind `after`: parked, or not yet come to such a key. */
function* homeless(
  table: Table,
  after: Entry | null,
  shows: Shows,
  max: number,
  found: Entry[],
): Generator<void, void, void> {
  let looks = 0;
  let skips = after !== null && isThere(table, after);
  for (const entry of table.entries.walk()) {
    if (++looks % LOOKS === 0) yield;
    if (skips) {
      skips = entry !== after;
      continue;
    }
    if (homeOf(entry, shows) !== null || !entry.claim.holds.some(({ key }) => shows(key))) continue;
    found.push(entry);
    if (found.length >= max) return;
  }
}
