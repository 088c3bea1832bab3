/** What tools see of a table. */

import type { ClaimView, Hold } from "../spi/driver.ts";
import type { Entry } from "./entry.ts";
import { standingOf } from "./standing.ts";
import type { Table } from "./table.ts";

/**
 * Live claims any of whose keys starts with prefix: by key, and in each line from the front. `after` is the tag of the
 * last claim of the page before; a cursor whose claim is gone starts again. The table must have been advanced to `now`.
 */
export function listTable(
  table: Table,
  tagOf: (id: string) => string,
  query: {
    readonly prefix: string;
    readonly max: number;
    readonly after?: string;
    /** May this key be shown? Of a claim only such keys are. Default: every key may. */
    readonly may?: (key: string) => boolean;
  },
  now: number,
): ClaimView[] {
  const { prefix, may = everyKey } = query;
  const shows = (key: string): boolean => key.startsWith(prefix) && may(key);
  const entries = entriesOf(table, shows);
  const start = query.after === undefined ? 0 : entries.findIndex((entry) => tagOf(entry.claim.id) === query.after) + 1;
  return entries.slice(start, start + query.max).map((entry) => viewOf(table, tagOf, entry, now, may));
}

const everyKey = (): boolean => true;

function entriesOf(table: Table, shows: (key: string) => boolean): Entry[] {
  const lines = table.mint.lines.values().filter(({ key }) => shows(key));
  const found = new Set<Entry>();
  for (const { seats } of lines.sort((a, b) => (a.key < b.key ? -1 : 1))) {
    for (const { entry } of seats) found.add(entry);
  }
  for (const entry of table.entries.values()) {
    // a parked place stands in no line, and one over several keys may not have come to this key yet
    if (entry.claim.holds.some(({ key }) => shows(key))) found.add(entry);
  }
  return [...found];
}

function viewOf(
  table: Table,
  tagOf: (id: string) => string,
  entry: Entry,
  now: number,
  may: (key: string) => boolean,
): ClaimView {
  const { id, ...claim } = entry.claim;
  // at least one is left: it was found by it
  const [first, ...others] = claim.holds.filter(({ key }) => may(key));
  const holds = [first as Hold, ...others] as const;
  const answer = standingOf(entry, now, table.sessionMs);
  const held = entry.held ? { heldMs: now - entry.heldAt } : {};
  return { ...claim, holds, tag: tagOf(id), answer, ageMs: now - entry.placedAt, ...held };
}
