/** One claim in the lock table. */

import type { Claim } from "../spi/driver.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import type { LinkedList } from "../util/linked-list.ts";
import type { QueueEntry } from "./key-queue.ts";

const NO_ENTRIES: readonly QueueEntry[] = [];

export class ClaimRecord {
  readonly claim: Claim;
  /** The receiver of notifications; opaque to the table (a session, a client). */
  owner: unknown;
  /** One entry per queue entered so far, in key order; all but the last are admitted. The array is replaced, never changed. */
  entries: readonly QueueEntry[] = NO_ENTRIES;
  /** The first token of the range; 0 while waiting. */
  token = 0;
  /** The length of the token range. */
  tokenCount = 0;
  /** Infinity for "session". */
  expiresAt: number;
  readonly placedAt: number;
  /** When it was granted, or reclaimed after a restart; 0 while waiting. */
  heldAt = 0;
  /** The order of arrival in the complete table. */
  readonly arrival: number;
  /** The server account that placed the claim, "" without accounts. Opaque to the table. */
  account = "";
  /** The maxHold timer of the table's owner; null: held as long as it is renewed. */
  maxHoldTimer: HeapItem | null = null;
  /** Not null: revoked. It answers "none" with this reason and cannot be renewed, but keeps its entries until it ends. */
  revokeReason: "revoked" | "maxHold" | null = null;
  /** Detached from its session: it has a plain lease since then. */
  isDetached = false;
  /** Call LockTableOptions.onRemoved when the claim is removed. */
  notifyOnRemoval = false;
  /** The journal has the claim; set by the owner of the table. */
  isJournaled = false;
  /** A suspended waiter: its waiting entry is out of the queue until its owner is back. */
  isSuspended = false;
  // links for a list of one owner's claims, which the table's owner keeps
  ownerList: LinkedList<ClaimRecord> | null = null;
  previous: ClaimRecord | null = null;
  next: ClaimRecord | null = null;
  // for LeaseExpiry
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

  /** Adds the entry of its next queue. push() would reserve room for sixteen more entries, which few claims need. */
  addEntry(entry: QueueEntry): void {
    this.entries = this.entries.length === 0 ? [entry] : this.entries.concat(entry);
  }

  get isHeld(): boolean {
    return this.token !== 0;
  }
}
