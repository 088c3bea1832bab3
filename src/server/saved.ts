/** The lock table as it is saved, and back. */

import type { Entry } from "../core/entry.ts";
import type { Table } from "../core/table.ts";
import type { SavedClaim, SavedSession } from "./disk.ts";
import { Session } from "./session.ts";

/** An entry as it stands. */
export function savedOf(entry: Entry, now: number): SavedClaim {
  const { claim, token, tokens, arrival, detached, by } = entry;
  const leftMs = claim.ttlMs === "session" ? 0 : Math.max(entry.expiresAt - now, 0);
  const session = entry.owner instanceof Session ? entry.owner.id : null;
  // an earlier version reads any word as true
  const revoked = entry.revoked === "revoked" ? true : (entry.revoked ?? false);
  return { claim, token, tokens, leftMs, arrival, detached, revoked, session, ...(by !== "" && { by }) };
}

export function savedSession({ id, local, label, pid, pidStart }: Session): SavedSession {
  return { id, local, label, pid, pidStart };
}

/** Puts a claim back, into a paused table whose time has been set. `owner`: null if it belongs to no session. */
export function putBack(table: Table, saved: SavedClaim, owner: Session | null, now: number, micros: number): void {
  const { claim, token, tokens, leftMs, arrival, detached, revoked, by = "" } = saved;
  if (token === 0) {
    table.claim({ ...claim, wait: true }, owner, now, micros, arrival);
    const waiting = table.entries.get(claim.id);
    if (waiting !== undefined) waiting.by = by;
    return;
  }
  table.assertHeld(claim, owner, token, tokens, leftMs);
  const entry = table.entries.get(claim.id);
  if (entry === undefined) return;
  entry.detached = detached;
  entry.revoked = revoked === true ? "revoked" : revoked || null;
  entry.by = by;
}

/** The first number above every token that was granted. */
export function nextToken(table: Table): number {
  let next = table.mint.clock;
  for (const line of table.mint.lines.values()) next = Math.max(next, line.last);
  return next + 1;
}
