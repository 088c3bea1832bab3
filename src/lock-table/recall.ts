/**
 * Recall: which holders learn that another claim waits for what they hold, and when it asks again.
 *
 * Invariants
 * - Only a granted claim is recalled that asked for it (`Claim.recall`) and is neither detached nor revoked. A queue in which
 *   no holder asked has neither pushes nor early rechecks.
 * - The holders of a queue are recalled when a claim begins to wait in it and none waited before, and again whenever the
 *   claim at the front is rechecked. Later waiters cause no push: those in front of them already did.
 * - An answer "held" says `recalled` while a claim waits in one of its queues, since the push may be lost or may have
 *   been sent before the grant.
 */

import type { ClaimRecord, KeyQueue, QueueEntry } from "./key-queue.ts";

/** The first recheck of a waiter that a push may have failed: short, since the holder may be idle. */
const FIRST_RECHECK_MS = 200;

/** The claims of a queue to recall. */
export function* recallableHolders<Owner>(queue: KeyQueue<Owner>): Generator<ClaimRecord<Owner>, void, void> {
  if (queue.recallableCount === 0) return;
  for (let entry = queue.entries.first; entry?.isAdmitted; entry = entry.next) {
    const { record } = entry;
    // one that is still on its way through several keys is told with its grant
    if (record.claim.recall && record.isHeld && !record.isDetached && record.revokeReason === null) yield record;
  }
}

/** Does it wait in front of all others? */
export function isFrontWaiter(entry: QueueEntry): boolean {
  return !entry.isAdmitted && entry.previous === entry.queue.lastAdmitted;
}

/** Is the claim, which is held, wanted back? */
export function isRecalled({ claim, entries, isHoldEnding, isDetached }: ClaimRecord): boolean {
  if (!claim.recall || isDetached) return false;
  if (isHoldEnding) return true;
  for (const { queue } of entries) if (queue.lastAdmitted !== queue.entries.last) return true;
  return false;
}

/**
 * When the waiter at the front asks again at the latest: soon, and then at intervals of its age. A push that was lost so
 * costs a fraction of the wait, and a long wait few calls.
 */
export function recallRecheckMs(record: ClaimRecord, entry: QueueEntry, now: number): number {
  if (entry.queue.recallableCount === 0 || !isFrontWaiter(entry)) return Number.POSITIVE_INFINITY;
  return Math.max(FIRST_RECHECK_MS, now - record.placedAt);
}
