/** Converts claims between the lock table and its saved form. */

import type { ClaimRecord } from "../../lock-table/claim-record.ts";
import type { LockTable } from "../../lock-table/table.ts";
import { Session } from "../session/session.ts";
import type { SavedClaim, SavedSession } from "../storage/storage.ts";

/** A claim in its current state. */
export function toSavedClaim(record: ClaimRecord, now: number): SavedClaim {
  const { claim, token, tokenCount: tokens, arrival, isDetached: detached, account: by } = record;
  const leftMs = claim.ttlMs === "session" ? 0 : Math.max(record.expiresAt - now, 0);
  const session = record.owner instanceof Session ? record.owner.id : null;
  // an earlier version reads any non-empty value as true
  const revoked = record.revokeReason === "revoked" ? true : (record.revokeReason ?? false);
  const { maxHoldTimer } = record;
  const ownership = { session, ...(by !== "" && { by }) };
  const holdLimit = maxHoldTimer !== null && { holdLeftMs: Math.max(maxHoldTimer.dueAt - now, 0) };
  return { claim, token, tokens, leftMs, arrival, detached, revoked, ...ownership, ...holdLimit };
}

export function toSavedSession({ id, isLocal: local, label, pid, pidStart, principal }: Session): SavedSession {
  return { id, local, label, pid, pidStart, ...(principal.name !== "" && { by: principal.name }) };
}

/**
 * Restores a claim into a paused table whose time is up to date. Returns its record, or null if it conflicts with
 * another claim. `owner`: null if it belongs to no session.
 */
export function restoreClaim(
  table: LockTable,
  saved: SavedClaim,
  owner: Session | null,
  now: number,
  micros: number,
): ClaimRecord | null {
  const { claim, token, tokens, leftMs, arrival, detached, revoked, by = "" } = saved;
  if (token === 0) table.claim({ ...claim, wait: true }, owner, now, micros, arrival, by);
  else table.reclaim(claim, owner, token, tokens, leftMs, by);
  const record = table.records.get(claim.id) ?? null;
  if (record === null || token === 0) return record;
  record.isDetached = detached;
  record.revokeReason = revoked === true ? "revoked" : revoked || null;
  return record;
}

/** The lowest number above every token that was granted. */
export function findNextToken(table: LockTable): number {
  let nextFree = table.tokenIssuer.clock;
  for (const line of table.tokenIssuer.queues.values()) nextFree = Math.max(nextFree, line.lastToken);
  return nextFree + 1;
}
