/** A claim of the lock table as it is saved, and back. */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import type { Session } from "../session/session.ts";
import type { SavedClaim } from "../storage/storage.ts";

/** The saved form of a claim in its current state. remainingMaxHoldMs: undefined if it has no `maxHold`. */
export function toSavedClaim(
  record: ClaimRecord<Session>,
  now: number,
  remainingMaxHoldMs: number | undefined,
): SavedClaim {
  const { claim, token, tokenCount, arrival, isDetached, revokeReason, account } = record;
  const remainingMs = claim.ttlMs === "session" ? 0 : Math.max(record.expiresAt - now, 0);
  const ownership = { sessionId: record.owner?.id ?? null, account };
  const maxHold = remainingMaxHoldMs !== undefined && { remainingMaxHoldMs };
  return { claim, token, tokenCount, remainingMs, arrival, isDetached, revokeReason, ...ownership, ...maxHold };
}

/**
 * Restores a claim into a paused table whose time is up to date. Returns its record, or null if it conflicts with
 * another claim. `owner`: null if it belongs to no session.
 */
export function restoreClaim(
  table: LockTable<Session>,
  saved: SavedClaim,
  owner: Session | null,
  time: Timestamps,
): ClaimRecord<Session> | null {
  const { claim, token, tokenCount, remainingMs, arrival, account } = saved;
  if (token === 0) table.claim({ ...claim, wait: true }, { owner, arrival, account }, time);
  else table.reclaim(claim, { owner, account }, { token, tokenCount, remainingMs });
  const record = table.records.get(claim.id) ?? null;
  if (record === null || token === 0) return record;
  record.isDetached = saved.isDetached;
  record.revokeReason = saved.revokeReason;
  return record;
}

/** The lowest number above every token that was granted. */
export function findNextToken(table: LockTable<Session>): number {
  let nextFree = table.tokenIssuer.clock;
  for (const queue of table.queues.values()) nextFree = Math.max(nextFree, queue.lastToken);
  return nextFree + 1;
}
