/** One claim as the lock table keeps it. */

import type { Claim } from "../spi/driver.ts";
import type { LinkedList } from "./queue.ts";
import type { Scheduled } from "./schedule.ts";
import type { Seat } from "./seats.ts";

const NOWHERE: readonly Seat[] = [];

export class Entry {
  readonly claim: Claim;
  /** Who is told of a grant; opaque to the table (a session, a client). */
  owner: unknown;
  /** One seat per line entered so far, in key order; all but the last are admitted. Replaced, never changed. */
  seats: readonly Seat[] = NOWHERE;
  /** First token of the run; 0 while waiting. */
  token = 0;
  /** Length of the run. */
  tokens = 0;
  /** Infinity for "session". */
  expiresAt: number;
  readonly placedAt: number;
  /** When it was granted, or taken back after a restart; 0 while waiting. */
  heldAt = 0;
  /** Order of arrival in the whole table. */
  readonly arrival: number;
  /** Who placed it: an account of the server's, "" for nobody in particular. Opaque to the table. */
  by = "";
  /** Until when it may be held, which is its owner's affair; null: as long as it is renewed. */
  outstay: Scheduled | null = null;
  /** Not null: it answers "none" and why, cannot be renewed, but keeps its place until released or its lease ends. */
  revoked: "revoked" | "maxHold" | null = null;
  /** Taken out of its session: a plain lease from then on. */
  detached = false;
  /** The table's owner wants to be told when it is gone. */
  kept = false;
  /** It comes back from disk; the mark is its keeper's. */
  journaled = false;
  /** Its waiting seat is out of the line until its owner is back. */
  parked = false;
  // for a list of its owner's claims, which is its owner's affair; list: the one that it stands in
  list: LinkedList<Entry> | null = null;
  previous: Entry | null = null;
  next: Entry | null = null;
  // for the schedule of expiries
  dueAt = 0;
  heapIndex = -1;
  before: Scheduled | undefined = undefined;
  behind: Scheduled | undefined = undefined;

  constructor(claim: Claim, owner: unknown, now: number, expiresAt: number, arrival: number) {
    this.claim = claim;
    this.owner = owner;
    this.placedAt = now;
    this.expiresAt = expiresAt;
    this.arrival = arrival;
  }

  /** Takes a seat in its next line. An array that grew by push() would have room for sixteen more, which few need. */
  sit(seat: Seat): void {
    this.seats = this.seats.length === 0 ? [seat] : this.seats.concat(seat);
  }

  get held(): boolean {
    return this.token !== 0;
  }
}
