/**
 * Deadlines of claims with a longest hold time (`maxHold`). When half of it has passed the claim is recalled: a client
 * that keeps the lock for its next request gives it back, so that no request begins that would be ended soon.
 */

import { ANONYMOUS } from "../../auth/access-control.ts";
import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import { DeadlineHeap } from "../../util/deadline-heap.ts";
import type { Session } from "../session/session.ts";

class HoldDeadline {
  readonly record: ClaimRecord<Session>;
  /** When the claim is revoked. */
  readonly endsAt: number;
  /** When the claim is recalled, then endsAt. */
  dueAt = 0;
  heapIndex = -1;
  constructor(record: ClaimRecord<Session>, endsAt: number) {
    this.record = record;
    this.endsAt = endsAt;
  }
}

export class HoldDeadlines {
  readonly #deadlines = new DeadlineHeap<HoldDeadline>();
  /** The deadline of each claim that has one, until the claim has ended. */
  readonly #byRecord = new Map<ClaimRecord<Session>, HoldDeadline>();

  /** Starts the deadline of a held claim, if the rules set one. Does nothing if the claim has one already. */
  start(record: ClaimRecord<Session>, { principal }: Session, now: number): void {
    if (principal === ANONYMOUS || !record.isHeld || this.has(record)) return;
    const maxHoldMs = principal.maxHoldMs(claimKeys(record));
    if (maxHoldMs !== Number.POSITIVE_INFINITY) this.set(record, maxHoldMs, now);
  }

  /** The claim may be held for remainingMs from now. */
  set(record: ClaimRecord<Session>, remainingMs: number, now: number): void {
    const deadline = new HoldDeadline(record, now + remainingMs);
    this.#byRecord.set(record, deadline);
    this.#deadlines.set(deadline, record.claim.recall ? now + remainingMs / 2 : deadline.endsAt);
  }

  /** False: the claim may be held as long as it is renewed. */
  has(record: ClaimRecord<Session>): boolean {
    return this.#byRecord.has(record);
  }

  /** How long the claim may still be held; undefined: as long as it is renewed. */
  remainingMs(record: ClaimRecord<Session>, now: number): number | undefined {
    const deadline = this.#byRecord.get(record);
    return deadline && Math.max(deadline.endsAt - now, 0);
  }

  /** Removes the deadline of a claim that has ended. */
  remove(record: ClaimRecord<Session>): void {
    const deadline = this.#byRecord.get(record);
    if (deadline === undefined) return;
    this.#byRecord.delete(record);
    this.#deadlines.remove(deadline);
  }

  nextDueAt(): number {
    return this.#deadlines.nextDueAt() ?? Number.POSITIVE_INFINITY;
  }

  /** Recalls and revokes the claims whose time has come. */
  advance(table: LockTable<Session>, time: Timestamps): void {
    const { now } = time;
    for (let due = this.#deadlines.takeDue(now); due !== null; due = this.#deadlines.takeDue(now)) {
      if (now < due.endsAt) {
        table.recall(due.record);
        this.#deadlines.set(due, due.endsAt);
        continue;
      }
      // it stays in the map, so that the claim does not get a second one
      table.revokeForMaxHold(due.record, time);
    }
  }
}

function* claimKeys({ claim }: ClaimRecord<Session>): Generator<string> {
  for (const { key } of claim.locks) yield key;
}
