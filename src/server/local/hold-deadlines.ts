/** Deadlines of claims with a longest hold time (`maxHold`). */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable } from "../../lock-table/table.ts";
import { DeadlineHeap } from "../../util/deadline-heap.ts";
import type { Principal } from "../auth/access-control.ts";

class HoldDeadline {
  readonly record: ClaimRecord;
  dueAt = 0;
  heapIndex = -1;
  constructor(record: ClaimRecord) {
    this.record = record;
  }
}

export class HoldDeadlines {
  readonly #deadlines = new DeadlineHeap<HoldDeadline>();

  /** Starts the deadline for a holder whose rules may set one. Does nothing if the claim has one already. */
  start(record: ClaimRecord, principal: Principal, now: number): void {
    if (record.maxHoldTimer !== null) return;
    const maxHoldMs = principal.maxHoldMs(claimKeys(record));
    if (maxHoldMs !== Number.POSITIVE_INFINITY) this.set(record, now + maxHoldMs);
  }

  set(record: ClaimRecord, dueAt: number): void {
    const deadline = new HoldDeadline(record);
    record.maxHoldTimer = deadline;
    this.#deadlines.set(deadline, dueAt);
  }

  /** Removes the deadline of a claim that has ended. */
  remove(record: ClaimRecord): void {
    if (record.maxHoldTimer !== null) this.#deadlines.remove(record.maxHoldTimer as HoldDeadline);
    record.maxHoldTimer = null;
  }

  nextDueAt(): number {
    return this.#deadlines.nextDueAt() ?? Number.POSITIVE_INFINITY;
  }

  /** Revokes the claims whose deadline has passed. */
  advance(table: LockTable, now: number, micros: number): void {
    for (let due = this.#deadlines.takeDue(now); due !== null; due = this.#deadlines.takeDue(now)) {
      // the claim keeps its timer, so that it does not get a second one
      table.revokeForMaxHold(due.record, now, micros);
    }
  }
}

function* claimKeys({ claim }: ClaimRecord): Generator<string> {
  for (const { key } of claim.locks) yield key;
}
