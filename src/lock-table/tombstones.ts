/**
 * Keeps for a while how claims ended. A tombstone answers "none" to a late duplicate of a `claim` call, which would otherwise
 * queue a claim that its client has abandoned. The end reasons of other claims are kept only for messages.
 */

import type { Answer, ClaimId, EndReason } from "../spi/driver.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";

/** Beyond this many notes, reasons for messages are not added any more; tombstones still are. */
const MAX_REASONS = 10_000;

export interface Tombstone {
  readonly id: ClaimId;
  reason: EndReason;
  dueAt: number;
  heapIndex: number;
}

export class Tombstones {
  readonly #byId = new Map<ClaimId, Tombstone>();
  readonly #expiry = new DeadlineHeap<Tombstone>();
  readonly #max: number;

  /** @param max the most notes; beyond it the oldest one is dropped, regardless of its client */
  constructor(max: number = Number.POSITIVE_INFINITY) {
    this.#max = max;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** All of them, the oldest first. */
  [Symbol.iterator](): Iterator<Readonly<Tombstone>> {
    return this.#byId.values();
  }

  /** Answers "none" to a late `claim` call with this id until `until`. */
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

  /** Keeps the end reason if there is room. */
  addIfRoom(id: ClaimId, reason: EndReason, until: number): void {
    if (this.#byId.size < MAX_REASONS) this.add(id, reason, until);
  }

  reasonOf(id: ClaimId): EndReason | undefined {
    return this.#byId.size === 0 ? undefined : this.#byId.get(id)?.reason;
  }

  /** The answer for a claim that is not in the table. */
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
