/**
 * The line of one key in the lock table: admitted places first, then waiting ones by arrival. It keeps the sum of the
 * admitted places, so that one grant costs the same however many wait. What it admits is what `countAdmitted` says of
 * the same places (a property test holds them together), except for reclaimed holds, which are held as asserted.
 */

import { LinkedList } from "../util/linked-list.ts";
import { fits } from "./admission.ts";
import type { ClaimRecord } from "./claim-record.ts";
import { HolderIndex } from "./holder-index.ts";

/** One claim's place in one line. */
export class QueueEntry {
  previous: QueueEntry | null = null;
  next: QueueEntry | null = null;
  isAdmitted = false;
  readonly queue: KeyQueue;
  readonly record: ClaimRecord;
  readonly permits: number;
  readonly limit: number;
  /** Order among the waiting of this line. */
  readonly arrival: number;
  constructor(queue: KeyQueue, record: ClaimRecord, permits: number, limit: number, arrival: number) {
    this.queue = queue;
    this.record = record;
    this.permits = permits;
    this.limit = limit;
    this.arrival = arrival;
  }
}

export class KeyQueue {
  readonly key: string;
  readonly entries: LinkedList<QueueEntry> = new LinkedList();
  /** The last admitted seat; all before it are admitted, none behind it. */
  lastAdmitted: QueueEntry | null = null;
  /** Permits of the admitted seats together. */
  usedPermits = 0;
  /** The highest token granted on this key that the table still has to remember; 0 if none. */
  lastToken = 0;
  /** The table has no line of this key any more, or another one. */
  isRemoved = false;
  // for the mint's schedule of lines to forget
  dueAt = 0;
  heapIndex = -1;
  /** No admitted seat has a lower limit; one that is gone may have had it. */
  #minLimit = Number.POSITIVE_INFINITY;
  /** Made when it is asked for the first time: of most lines nobody asks, and it would cost each grant. */
  #holders: HolderIndex | null = null;
  constructor(key: string) {
    this.key = key;
  }

  /** Who holds the key with this token, which may be any of its run; null: nobody does. */
  findHolder(token: number): ClaimRecord | null {
    if (this.#holders === null) {
      this.#holders = new HolderIndex();
      for (let entry = this.entries.first; entry?.isAdmitted; entry = entry.next) {
        if (entry.record.isHeld) this.#holders.add(entry.record);
      }
    }
    return this.#holders.findByToken(token);
  }

  /** A claim that is admitted here has its tokens now. */
  addHolder(record: ClaimRecord): void {
    this.#holders?.add(record);
  }

  /** A holder was revoked, and keeps its place. */
  markRevoked(record: ClaimRecord): void {
    this.#holders?.markRevoked(record);
  }

  /** Would a claim be admitted at once if it came now? Only if nobody waits and it fits. */
  hasRoomFor(spec: { readonly permits: number; readonly limit: number }): boolean {
    return this.lastAdmitted === this.entries.last && fits(this.usedPermits, spec);
  }

  /** Puts a seat among the waiting, by arrival. */
  enqueue(entry: QueueEntry): void {
    let predecessor = this.entries.last;
    while (predecessor !== this.lastAdmitted && (predecessor as QueueEntry).arrival > entry.arrival)
      predecessor = (predecessor as QueueEntry).previous;
    this.entries.insertAfter(predecessor, entry);
  }

  /** Puts a seat among the admitted, ordered by its entry's token, without asking the admission rule. */
  insertAdmitted(entry: QueueEntry): void {
    let predecessor = this.lastAdmitted;
    while (predecessor !== null && predecessor.record.token > entry.record.token) predecessor = predecessor.previous;
    this.entries.insertAfter(predecessor, entry);
    if (predecessor === this.lastAdmitted) this.lastAdmitted = entry;
    this.#markAdmitted(entry);
  }

  remove(entry: QueueEntry): void {
    if (entry === this.lastAdmitted) this.lastAdmitted = entry.previous;
    if (entry.isAdmitted) {
      this.usedPermits -= entry.permits;
      this.#holders?.remove(entry.record);
    }
    this.entries.remove(entry);
  }

  /** Admits this seat if it is the next one and the rule allows it. */
  tryAdmit(entry: QueueEntry): boolean {
    if (entry !== this.#nextWaiting() || !fits(this.usedPermits, entry)) return false;
    this.lastAdmitted = entry;
    this.#markAdmitted(entry);
    return true;
  }

  /** Admits the next seat if the rule allows it, and gives it; null if it must wait or nobody does. */
  admitNext(): QueueEntry | null {
    const next = this.#nextWaiting();
    return next !== null && this.tryAdmit(next) ? next : null;
  }

  #markAdmitted(entry: QueueEntry): void {
    entry.isAdmitted = true;
    this.usedPermits += entry.permits;
    if (entry.limit < this.#minLimit) this.#minLimit = entry.limit;
  }

  #nextWaiting(): QueueEntry | null {
    return this.lastAdmitted === null ? this.entries.first : this.lastAdmitted.next;
  }

  /**
   * The admitted seat that must go so that those left could all have been granted, in whatever order: the lowest token of
   * those that are too many; null if all fit. Not in the order of tokens: who takes several keys stands in the first lines
   * before it has its token, and others, with other limits, may have been granted there meanwhile. If any order will do, the
   * least limit first does (Jackson's rule of the earliest due date).
   */
  findConflict(): QueueEntry | null {
    // thousands of readers that come back are not looked through for each of them
    if (this.usedPermits <= this.#minLimit) return null;
    let minLimit = Number.POSITIVE_INFINITY;
    for (let entry = this.entries.first; entry?.isAdmitted; entry = entry.next)
      minLimit = Math.min(minLimit, entry.limit);
    this.#minLimit = minLimit;
    if (this.usedPermits <= minLimit) return null;
    const admitted = [...this.entries].filter((entry) => entry.isAdmitted);
    admitted.sort((a, b) => a.limit - b.limit);
    let usedPermits = 0;
    let lowestEntry = admitted[0] as QueueEntry;
    for (const entry of admitted) {
      if (entry.record.token < lowestEntry.record.token) lowestEntry = entry;
      if (!fits(usedPermits, entry)) return lowestEntry;
      usedPermits += entry.permits;
    }
    return null;
  }
}
