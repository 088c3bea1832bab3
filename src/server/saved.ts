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
  const { outstay } = entry;
  const who = { session, ...(by !== "" && { by }) };
  const bounded = outstay !== null && { holdLeftMs: Math.max(outstay.dueAt - now, 0) };
  return { claim, token, tokens, leftMs, arrival, detached, revoked, ...who, ...bounded };
}

export function savedSession({ id, local, label, pid, pidStart, principal }: Session): SavedSession {
  return { id, local, label, pid, pidStart, ...(principal.name !== "" && { by: principal.name }) };
}

/**
 * Puts a claim back, into a paused table whose time has been set; gives its entry, or null if it could not stand.
 * `owner`: null if it belongs to no session.
 */
export function putBack(
  table: Table,
  saved: SavedClaim,
  owner: Session | null,
  now: number,
  micros: number,
): Entry | null {
  const { claim, token, tokens, leftMs, arrival, detached, revoked, by = "" } = saved;
  if (token === 0) table.claim({ ...claim, wait: true }, owner, now, micros, arrival, by);
  else table.assertHeld(claim, owner, token, tokens, leftMs, by);
  const entry = table.entries.get(claim.id) ?? null;
  if (entry === null || token === 0) return entry;
  entry.detached = detached;
  entry.revoked = revoked === true ? "revoked" : revoked || null;
  return entry;
}

/** The first number above every token that was granted. */
export function nextToken(table: Table): number {
  let next = table.mint.clock;
  for (const line of table.mint.lines.values()) next = Math.max(next, line.last);
  return next + 1;
}
