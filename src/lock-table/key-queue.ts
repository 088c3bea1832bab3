/** What the lock table keeps: its claims, their entries in queues, and the queue of each key with an index of its holders. */

import type { Claim } from "../spi/driver.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import { LinkedList } from "../util/linked-list.ts";
import { fits } from "./admission.ts";

const NO_ENTRIES: readonly never[] = [];

/** One claim in the lock table. */
export class ClaimRecord<Owner = unknown> {
  readonly claim: Claim;
  /** The receiver of notifications; null: it has none. */
  owner: Owner | null;
  /** One entry per queue entered so far, in key order; all but the last are admitted. The array is replaced, never changed. */
  entries: readonly QueueEntry<Owner>[] = NO_ENTRIES;
  /** The first token of the range; 0 while waiting. */
  token = 0;
  /** The length of the token range. */
  tokenCount = 0;
  /** Infinity for "session". */
  expiresAt: number;
  placedAt: number;
  /** When it was granted, or reclaimed after a restart; 0 while waiting. */
  heldAt = 0;
  /** The order of arrival in the complete table. */
  readonly arrival: number;
  /** The account that placed the claim, "" for none. The table only keeps it. */
  account = "";
  /** Not null: revoked. It answers "none" with this reason and cannot be renewed, but keeps its entries until it ends. */
  revokeReason: "revoked" | "maxHold" | null = null;
  /** More than half of its `maxHold` has passed: see LockTable.recall(). */
  isHoldEnding = false;
  /** Detached from its session: it has a plain lease since then. */
  isDetached = false;
  /** A suspended waiter: its waiting entry is out of the queue until its owner is back. */
  isSuspended = false;
  // for the list of its owner's claims, if the owner keeps one
  ownerList: LinkedList<ClaimRecord<Owner>> | null = null;
  previous: ClaimRecord<Owner> | null = null;
  next: ClaimRecord<Owner> | null = null;
  // for LeaseExpiry
  dueAt = 0;
  heapIndex = -1;
  previousSameDue: HeapItem | undefined = undefined;
  nextSameDue: HeapItem | undefined = undefined;

  constructor(claim: Claim, owner: Owner | null, now: number, expiresAt: number, arrival: number) {
    this.claim = claim;
    this.owner = owner;
    this.placedAt = now;
    this.expiresAt = expiresAt;
    this.arrival = arrival;
  }

  /** Adds the entry of its next queue. push() would reserve room for sixteen more entries, which few claims need. */
  addEntry(entry: QueueEntry<Owner>): void {
    this.entries = this.entries.length === 0 ? [entry] : this.entries.concat(entry);
  }

  get isHeld(): boolean {
    return this.token !== 0;
  }
}

/** The entry of one claim in one queue. */
export class QueueEntry<Owner = unknown> {
  previous: QueueEntry<Owner> | null = null;
  next: QueueEntry<Owner> | null = null;
  isAdmitted = false;
  readonly queue: KeyQueue<Owner>;
  readonly record: ClaimRecord<Owner>;
  readonly permits: number;
  readonly limit: number;
  /** The order among the waiting entries of this queue. */
  readonly arrival: number;
  constructor(queue: KeyQueue<Owner>, record: ClaimRecord<Owner>, permits: number, limit: number, arrival: number) {
    this.queue = queue;
    this.record = record;
    this.permits = permits;
    this.limit = limit;
    this.arrival = arrival;
  }
}

/**
 * The queue of one key in the lock table: admitted entries first, then waiting ones by arrival. It keeps the sum of the
 * admitted permits, so that the cost of a grant does not depend on the number of waiters. It admits the same entries as
 * `countAdmitted` (a property test compares them), except for reclaimed claims, which are admitted as their clients report.
 */
export class KeyQueue<Owner = unknown> {
  readonly key: string;
  readonly entries: LinkedList<QueueEntry<Owner>> = new LinkedList();
  /** The last admitted entry; all before it are admitted, none behind it. */
  lastAdmitted: QueueEntry<Owner> | null = null;
  /** The sum of the permits of the admitted entries. */
  usedPermits = 0;
  /** The highest token granted on this key that the table still has to keep; 0 if none. */
  lastToken = 0;
  /** How many of its holders asked to be recalled. */
  recallableCount = 0;
  /** This queue is no longer in the table, which may have a new one for the key. */
  isRemoved = false;
  // for the token issuer's schedule of queues to delete
  dueAt = 0;
  heapIndex = -1;
  /** A lower bound of the limits of all admitted entries; a removed entry may have set it. */
  #minLimit = Number.POSITIVE_INFINITY;
  /** Created at the first lookup: most queues never have one, and the index would make each grant slower. */
  #holders: HolderIndex<Owner> | null = null;
  constructor(key: string) {
    this.key = key;
  }

  /** Finds the holder with this token, which may be any of its range; null: there is none. */
  findHolder(token: number): ClaimRecord<Owner> | null {
    if (this.#holders === null) {
      this.#holders = new HolderIndex<Owner>();
      for (let entry = this.entries.first; entry?.isAdmitted; entry = entry.next) {
        if (entry.record.isHeld) this.#holders.add(entry.record);
      }
    }
    return this.#holders.findByToken(token);
  }

  /** A claim that is admitted here has got its tokens. */
  addHolder(record: ClaimRecord<Owner>): void {
    if (record.claim.recall) this.recallableCount++;
    this.#holders?.add(record);
  }

  /** The token range of a holder became longer. */
  noteTokenCount(count: number): void {
    this.#holders?.noteTokenCount(count);
  }

  /** Notes that a holder was revoked; it keeps its entry. */
  markRevoked(record: ClaimRecord<Owner>): void {
    this.#holders?.markRevoked(record);
  }

  /** Would a claim be admitted at once if it arrived now? Only if there are no waiters and it fits. */
  hasRoomFor(spec: { readonly permits: number; readonly limit: number }): boolean {
    return this.lastAdmitted === this.entries.last && fits(this.usedPermits, spec);
  }

  /** Inserts a waiting entry by its arrival. */
  enqueue(entry: QueueEntry<Owner>): void {
    let predecessor = this.entries.last;
    while (predecessor !== this.lastAdmitted && (predecessor as QueueEntry<Owner>).arrival > entry.arrival)
      predecessor = (predecessor as QueueEntry<Owner>).previous;
    this.entries.insertAfter(predecessor, entry);
  }

  /** Inserts an admitted entry by the token of its claim, without the admission rule. */
  insertAdmitted(entry: QueueEntry<Owner>): void {
    let predecessor = this.lastAdmitted;
    while (predecessor !== null && predecessor.record.token > entry.record.token) predecessor = predecessor.previous;
    this.entries.insertAfter(predecessor, entry);
    if (predecessor === this.lastAdmitted) this.lastAdmitted = entry;
    this.#markAdmitted(entry);
  }

  remove(entry: QueueEntry<Owner>): void {
    if (entry === this.lastAdmitted) this.lastAdmitted = entry.previous;
    if (entry.isAdmitted) {
      this.usedPermits -= entry.permits;
      if (entry.record.claim.recall && entry.record.isHeld) this.recallableCount--;
      this.#holders?.remove(entry.record);
    }
    this.entries.remove(entry);
  }

  /** Admits this entry if it is the next one and the admission rule allows it. */
  tryAdmit(entry: QueueEntry<Owner>): boolean {
    if (entry !== this.#nextWaiting() || !fits(this.usedPermits, entry)) return false;
    this.lastAdmitted = entry;
    this.#markAdmitted(entry);
    return true;
  }

  /** Admits and returns the next entry if the admission rule allows it; null if it must wait or there is none. */
  admitNext(): QueueEntry<Owner> | null {
    const next = this.#nextWaiting();
    return next !== null && this.tryAdmit(next) ? next : null;
  }

  #markAdmitted(entry: QueueEntry<Owner>): void {
    entry.isAdmitted = true;
    this.usedPermits += entry.permits;
    if (entry.limit < this.#minLimit) this.#minLimit = entry.limit;
  }

  #nextWaiting(): QueueEntry<Owner> | null {
    return this.lastAdmitted === null ? this.entries.first : this.lastAdmitted.next;
  }

  /**
   * Finds the admitted entry that must be removed because the admitted entries could not all have been granted, in any
   * order: the one with the lowest token of those that conflict; null if all fit. The check cannot use the order of tokens:
   * a claim for several keys enters its first queues before it has its token, and claims with other limits may be granted
   * there meanwhile. If the entries fit in any order, they fit in the order of their limits, lowest first (Jackson's rule of
   * the earliest due date).
   */
  findConflict(): QueueEntry<Owner> | null {
    // without this shortcut, reclaiming thousands of readers would scan all of them for each one
    if (this.usedPermits <= this.#minLimit) return null;
    let minLimit = Number.POSITIVE_INFINITY;
    for (let entry = this.entries.first; entry?.isAdmitted; entry = entry.next)
      minLimit = Math.min(minLimit, entry.limit);
    this.#minLimit = minLimit;
    if (this.usedPermits <= minLimit) return null;
    const admitted = [...this.entries].filter((entry) => entry.isAdmitted);
    admitted.sort((a, b) => a.limit - b.limit);
    let usedPermits = 0;
    let lowestEntry = admitted[0] as QueueEntry<Owner>;
    for (const entry of admitted) {
      if (entry.record.token < lowestEntry.record.token) lowestEntry = entry;
      if (!fits(usedPermits, entry)) return lowestEntry;
      usedPermits += entry.permits;
    }
    return null;
  }
}

/**
 * The claims that hold one key, by their tokens. A lookup takes as many steps as the key has holders, or as its longest range has
 * tokens, whichever is less.
 *
 * The token ranges of one key do not overlap, unless a client reclaims a claim with tokens of another one after a restart.
 * Of two claims with the same first token both are kept, the one that can still be revoked first.
 */
class HolderIndex<Owner> {
  readonly #byFirstToken = new Map<number, ClaimRecord<Owner> | Set<ClaimRecord<Owner>>>();
  /** The longest token range so far. */
  #maxTokenCount = 1;

  noteTokenCount(count: number): void {
    this.#maxTokenCount = Math.max(this.#maxTokenCount, count);
  }

  add(record: ClaimRecord<Owner>): void {
    const existing = this.#byFirstToken.get(record.token);
    this.noteTokenCount(record.tokenCount);
    if (existing === undefined) this.#byFirstToken.set(record.token, record);
    else if (existing instanceof Set) existing.add(record);
    else this.#byFirstToken.set(record.token, new Set([existing, record]));
  }

  remove(record: ClaimRecord<Owner>): void {
    const existing = this.#byFirstToken.get(record.token);
    if (existing instanceof Set) {
      existing.delete(record);
      if (existing.size === 0) this.#byFirstToken.delete(record.token);
    } else if (existing === record) this.#byFirstToken.delete(record.token);
  }

  /** Moves a revoked claim, which keeps its entry, behind others with the same first token. */
  markRevoked(record: ClaimRecord<Owner>): void {
    this.remove(record);
    this.add(record);
  }

  /** Finds the holder with this token, which may be any of its range; null: there is none. */
  findByToken(token: number): ClaimRecord<Owner> | null {
    if (this.#byFirstToken.size < this.#maxTokenCount) return this.#findAmongFew(token);
    for (let first = token; first > token - this.#maxTokenCount; first--) {
      const existing = this.#byFirstToken.get(first);
      if (existing === undefined) continue;
      const record = firstOf(existing);
      if (token < first + record.tokenCount) return record;
    }
    return null;
  }

  /** The same for fewer holders than tokens of a range. */
  #findAmongFew(token: number): ClaimRecord<Owner> | null {
    let found: ClaimRecord<Owner> | null = null;
    for (const existing of this.#byFirstToken.values()) {
      const record = firstOf(existing);
      const hasToken = token >= record.token && token < record.token + record.tokenCount;
      if (hasToken && (found === null || found.token < record.token)) found = record;
    }
    return found;
  }
}

function firstOf<T>(existing: T | Set<T>): T {
  return existing instanceof Set ? (existing.values().next().value as T) : existing;
}
