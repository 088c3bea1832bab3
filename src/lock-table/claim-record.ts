/** One claim as the lock table keeps it. */

import type { Claim } from "../spi/driver.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import type { LinkedList } from "../util/linked-list.ts";
import type { QueueEntry } from "./key-queue.ts";

const NO_ENTRIES: readonly QueueEntry[] = [];

export class ClaimRecord {
  readonly claim: Claim;
  /** Who is told of a grant; opaque to the table (a session, a client). */
  owner: unknown;
  /** One seat per line entered so far, in key order; all but the last are admitted. Replaced, never changed. */
  entries: readonly QueueEntry[] = NO_ENTRIES;
  /** First token of the run; 0 while waiting. */
  token = 0;
  /** Length of the run. */
  tokenCount = 0;
  /** Infinity for "session". */
  expiresAt: number;
  readonly placedAt: number;
  /** When it was granted, or taken back after a restart; 0 while waiting. */
  heldAt = 0;
  /** Order of arrival in the whole table. */
  readonly arrival: number;
  /** Who placed it: an account of the server's, "" for nobody in particular. Opaque to the table. */
  account = "";
  /** Until when it may be held, which is its owner's affair; null: as long as it is renewed. */
  maxHoldTimer: HeapItem | null = null;
  /** Not null: it answers "none" and why, cannot be renewed, but keeps its place until released or its lease ends. */
  revokeReason: "revoked" | "maxHold" | null = null;
  /** Taken out of its session: a plain lease from then on. */
  isDetached = false;
  /** The table's owner wants to be told when it is gone. */
  notifyOnRemoval = false;
  /** It comes back from disk; the mark is its keeper's. */
  isJournaled = false;
  /** Its waiting seat is out of the line until its owner is back. */
  isSuspended = false;
  // for a list of its owner's claims, which is its owner's affair; list: the one that it stands in
  ownerList: LinkedList<ClaimRecord> | null = null;
  previous: ClaimRecord | null = null;
  next: ClaimRecord | null = null;
  // for the schedule of expiries
  dueAt = 0;
  heapIndex = -1;
  previousSameDue: HeapItem | undefined = undefined;
  nextSameDue: HeapItem | undefined = undefined;

  constructor(claim: Claim, owner: unknown, now: number, expiresAt: number, arrival: number) {
    this.claim = claim;
    this.owner = owner;
    this.placedAt = now;
    this.expiresAt = expiresAt;
    this.arrival = arrival;
  }

  /** Takes a seat in its next line. An array that grew by push() would have room for sixteen more, which few need. */
  addEntry(entry: QueueEntry): void {
    this.entries = this.entries.length === 0 ? [entry] : this.entries.concat(entry);
  }

  get isHeld(): boolean {
    return this.token !== 0;
  }
}
