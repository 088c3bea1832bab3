/** A claim of the lock table as it is saved, and back. */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import type { Session } from "../session/session.ts";
import type { SavedClaim } from "../storage/storage.ts";

/** The saved form of a claim in its current state. `holdLeftMs`: the remaining time of its `maxHold`; undefined: no limit. */
export function toSavedClaim(record: ClaimRecord<Session>, now: number, holdLeftMs: number | undefined): SavedClaim {
  const { claim, token, tokenCount: tokens, arrival, isDetached: detached, account: by } = record;
  const leftMs = claim.ttlMs === "session" ? 0 : Math.max(record.expiresAt - now, 0);
  const session = record.owner?.id ?? null;
  // an earlier version reads any non-empty value as true
  const revoked = record.revokeReason === "revoked" ? true : (record.revokeReason ?? false);
  const ownership = { session, ...(by !== "" && { by }) };
  const holdLimit = holdLeftMs !== undefined && { holdLeftMs };
  return { claim, token, tokens, leftMs, arrival, detached, revoked, ...ownership, ...holdLimit };
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
  const { claim, token, tokens, leftMs, arrival, detached, revoked, by = "" } = saved;
  if (token === 0) table.claim({ ...claim, wait: true }, { owner, arrival, account: by }, time);
  else table.reclaim(claim, { owner, account: by }, { token, tokenCount: tokens, remainingMs: leftMs });
  const record = table.records.get(claim.id) ?? null;
  if (record === null || token === 0) return record;
  record.isDetached = detached;
  record.revokeReason = revoked === true ? "revoked" : revoked || null;
  return record;
}
