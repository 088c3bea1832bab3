/** The expiry of the leases of a lock table. "session" claims never expire. */

import { DeadlineHeap } from "../util/deadline-heap.ts";
import type { ClaimRecord, QueueEntry } from "./key-queue.ts";

/** The most claims outside the heap: this many can be added to it at once in less than a millisecond. */
const MAX_UNSORTED = 4_096;
/** How many entries ahead are read to compute when a waiting claim should be rechecked. */
const MAX_RECHECK_SCAN = 32;

export class LeaseExpiry<Owner> {
  readonly #heap = new DeadlineHeap<ClaimRecord<Owner>>();
  /** Unordered, each claim at its heapIndex: most claims are released long before they expire and never enter the heap. */
  readonly #unsorted: ClaimRecord<Owner>[] = [];
  /** No unsorted claim expires before this time. */
  #unsortedDueAt = Number.POSITIVE_INFINITY;

  add(record: ClaimRecord<Owner>): void {
    const { expiresAt } = record;
    if (expiresAt === Number.POSITIVE_INFINITY) return;
    if (this.#unsorted.length === MAX_UNSORTED) return this.#heap.set(record, expiresAt);
    record.heapIndex = this.#unsorted.length;
    this.#unsorted.push(record);
    if (expiresAt < this.#unsortedDueAt) this.#unsortedDueAt = expiresAt;
  }

  remove(record: ClaimRecord<Owner>): void {
    const index = record.heapIndex;
    if (this.#unsorted[index] !== record) return this.#heap.remove(record);
    record.heapIndex = -1;
    const last = this.#unsorted.pop() as ClaimRecord<Owner>;
    if (this.#unsorted.length === 0) this.#unsortedDueAt = Number.POSITIVE_INFINITY;
    if (last === record) return;
    this.#unsorted[index] = last;
    last.heapIndex = index;
  }

  /** Restarts a lease. The claim keeps its position in the heap: takeExpired() puts back a claim that comes up too early. */
  extend(record: ClaimRecord<Owner>, now: number): void {
    if (record.claim.ttlMs !== "session") record.expiresAt = now + record.claim.ttlMs;
  }

  /** Ends a lease at `until`, unless it ends before. Unlike a later end, an earlier one moves the claim in the heap. Was it shortened? */
  shorten(record: ClaimRecord<Owner>, until: number): boolean {
    if (until >= record.expiresAt) return false;
    this.remove(record);
    record.expiresAt = until;
    this.add(record);
    return true;
  }

  /** Removes and returns the next claim that has expired at `now`, or null. */
  takeExpired(now: number): ClaimRecord<Owner> | null {
    if (now >= this.#unsortedDueAt) this.#sortUnsorted();
    for (let record = this.#heap.takeDue(now); record !== null; record = this.#heap.takeDue(now)) {
      if (record.expiresAt <= now) return record;
      this.#heap.set(record, record.expiresAt);
    }
    return null;
  }

  /** When takeExpired() may next find a claim, or null. May be too early. */
  nextDueAt(): number | null {
    const next = Math.min(this.#heap.nextDueAt() ?? Number.POSITIVE_INFINITY, this.#unsortedDueAt);
    return next === Number.POSITIVE_INFINITY ? null : next;
  }

  /** Moves the unsorted claims into the heap. */
  #sortUnsorted(): void {
    for (const record of this.#unsorted) {
      record.heapIndex = -1;
      this.#heap.set(record, record.expiresAt);
    }
    this.#unsorted.length = 0;
    this.#unsortedDueAt = Number.POSITIVE_INFINITY;
  }
}

/** When the first of the leases may end that are ahead of a waiting claim. It becomes earlier only if one is cut short. */
export function findEndAhead(record: ClaimRecord): number {
  let end = Number.POSITIVE_INFINITY;
  let entry = (record.entries.at(-1) as QueueEntry).queue.entries.first;
  for (let scanned = 0; entry !== null && entry.record !== record && scanned < MAX_RECHECK_SCAN; scanned++) {
    end = Math.min(end, entry.record.expiresAt);
    entry = entry.next;
  }
  return end;
}
