/**
 * How claims ended, remembered for a while: tombstones, which answer "none" to a late duplicate of `claim` (design
 * A.15: without one it could take a place nobody wants), and the reasons of other endings, kept only to tell people.
 */

import type { Answer, ClaimId, EndReason } from "../spi/driver.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";

/** Reasons are a courtesy: beyond this many they are dropped. Tombstones are kept then, too. */
const MAX_REASONS = 10_000;

interface Tombstone {
  readonly id: ClaimId;
  reason: EndReason;
  dueAt: number;
  heapIndex: number;
}

export class Tombstones {
  readonly #byId = new Map<ClaimId, Tombstone>();
  readonly #expiry = new DeadlineHeap<Tombstone>();
  readonly #max: number;

  /** most: what is remembered; beyond, the oldest is forgotten for the newest, whoever they are of. */
  constructor(max: number = Number.POSITIVE_INFINITY) {
    this.#max = max;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** A late `claim` for this id must be answered "none" until then. */
  add(id: ClaimId, reason: EndReason, until: number): void {
    const existing = this.#byId.get(id);
    if (existing !== undefined) {
      existing.reason = reason;
      this.#expiry.set(existing, Math.max(until, existing.dueAt));
      return;
    }
    const tombstone: Tombstone = { id, reason, dueAt: 0, heapIndex: -1 };
    this.#byId.set(id, tombstone);
    this.#expiry.set(tombstone, until);
    if (this.#byId.size > this.#max) this.#removeOldest();
  }

  /** Remember why, if there is room. */
  addIfRoom(id: ClaimId, reason: EndReason, until: number): void {
    if (this.#byId.size < MAX_REASONS) this.add(id, reason, until);
  }

  reasonOf(id: ClaimId): EndReason | undefined {
    return this.#byId.size === 0 ? undefined : this.#byId.get(id)?.reason;
  }

  /** The answer about a claim that is not there. */
  noneAnswer(id: ClaimId): Answer {
    const reason = this.reasonOf(id);
    return reason === undefined ? { state: "none" } : { state: "none", reason };
  }

  #removeOldest(): void {
    const [oldest] = this.#byId.values();
    this.#expiry.remove(oldest as Tombstone);
    this.#byId.delete((oldest as Tombstone).id);
  }

  removeExpired(now: number): void {
    for (let tombstone = this.#expiry.takeDue(now); tombstone !== null; tombstone = this.#expiry.takeDue(now)) {
      this.#byId.delete(tombstone.id);
    }
  }
}
