// The raw state of a lock table (core/table.ts), which the memory driver and our server keep: its lines and entries as
// they stand in memory, not what its verbs answer.

import type { Entry } from "../../src/core/entry.ts";
import type { Seat, SeatLine } from "../../src/core/seats.ts";
import type { Table } from "../../src/core/table.ts";
import { tagOf } from "../../src/ids.ts";
import { Session } from "../../src/server/session.ts";
import type { StoredPlace, StoreView } from "./inspect.ts";
import { violationsOf } from "./inspect.ts";

/** Everything that is wrong with a lock table, in words; empty if nothing is. */
export function tableViolations(table: Table): string[] {
  const found = violationsOf(viewOf(table));
  for (const line of table.mint.lines.values()) found.push(...bookkeepingOf(line));
  return found;
}

function viewOf(table: Table): StoreView {
  const places: StoredPlace[] = [];
  const orphans: string[] = [];
  for (const line of table.mint.lines.values()) {
    for (const seat of line.seats) {
      places.push(placeOf(seat));
      const { entry } = seat;
      const isKnown = table.entries.get(entry.claim.id) === entry && entry.seats.includes(seat);
      if (!isKnown) orphans.push(`a place of ${nameOf(entry)} on "${line.key}"`);
    }
  }
  const endless: string[] = [];
  for (const entry of table.entries.values()) {
    for (const key of missing(table, entry)) orphans.push(`${nameOf(entry)} without its place on "${key}"`);
    if (isAbandoned(entry)) orphans.push(`${nameOf(entry)} of a session that does not have it`);
    if (!hasEnd(entry)) endless.push(nameOf(entry));
  }
  return { places, endless, orphans };
}

function placeOf({ entry, line, permits, limit, admitted }: Seat): StoredPlace {
  return { claim: nameOf(entry), key: line.key, permits, limit, state: admitted ? "held" : "waiting" };
}

/** The keys where the claim should have a place, and the table has none: all that it has entered, or all if it holds. */
function missing(table: Table, entry: Entry): string[] {
  const { holds } = entry.claim;
  const entered = entry.held ? holds.length : Math.max(entry.seats.length, 1);
  const gone: string[] = [];
  for (const [index, { key }] of holds.slice(0, entered).entries()) {
    const seat = entry.seats[index];
    // a parked place is out of its line until its client is back
    if (seat !== undefined && entry.parked && seat === entry.seats.at(-1)) continue;
    const line = table.mint.lines.get(key);
    if (seat === undefined || line !== seat.line || ![...line.seats].includes(seat)) gone.push(key);
  }
  return gone;
}

/** A lease that runs out and is scheduled to. One of a session ends with it: see isAbandoned(). */
function hasEnd({ claim, expiresAt, heapIndex }: Entry): boolean {
  return claim.ttlMs === "session" || (Number.isFinite(expiresAt) && heapIndex !== -1);
}

/** On our server: its session has ended, or does not count it among its claims, so that nothing would end it. */
function isAbandoned({ owner, list }: Entry): boolean {
  return owner instanceof Session && (owner.ended || list !== owner.entries);
}

/** The sum and the frontier of a line are what its seats say. */
function bookkeepingOf({ key, seats, frontier, used }: SeatLine): string[] {
  const all = [...seats];
  const admitted = all.filter((seat) => seat.admitted);
  const found: string[] = [];
  const sum = admitted.reduce((total, { permits }) => total + permits, 0);
  if (sum !== used) found.push(`"${key}" counts ${used} permits held, and ${sum} are`);
  if (all.slice(0, admitted.length).some((seat) => !seat.admitted)) found.push(`"${key}" has a waiter before a holder`);
  if (frontier !== (admitted.at(-1) ?? null)) found.push(`"${key}" has a wrong frontier`);
  if (all.length !== seats.size) found.push(`"${key}" counts ${seats.size} places, and has ${all.length}`);
  return found;
}

function nameOf({ claim }: Entry): string {
  return tagOf(claim.id);
}
