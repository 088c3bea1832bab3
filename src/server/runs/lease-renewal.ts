/** Leases of a run whose wrapper cannot see to them any more: while its command works, and when it has ended. */

import type { Backend } from "../backend.ts";
import type { Session } from "../session/session.ts";
import type { CommandRun } from "./command-run.ts";

/** Renews what has less than half of its lease left. Claims of the session itself need none. */
export function renewLeases(backend: Backend, session: Session, now: number): void {
  const items = [];
  for (const { claim, isHeld, revokeReason, expiresAt } of session.records) {
    if (claim.ttlMs === "session" || !isHeld || revokeReason !== null) continue;
    if (expiresAt - now < claim.ttlMs / 2) items.push({ id: claim.id, claim: null });
  }
  if (items.length > 0) void renewQuietly(backend, session, items);
}

async function renewQuietly(backend: Backend, session: Session, items: Parameters<Backend["renew"]>[1]): Promise<void> {
  try {
    await backend.renew(session, items);
  } catch {
    // a lease over a minute is written: that a disk cannot be stands in the log, and the next look renews again
  }
}

/**
 * What a run that is over wanted to be held for longer (`--hold-at-least`) stays held, as nobody's, for what is left of that.
 * Its file goes when that is written: a server that dies before leaves it to the next one.
 */
export async function detachForRemainder(backend: Backend, session: Session, run: CommandRun): Promise<void> {
  const remainingMs = run.remainingHoldMs();
  const runClaimIds = new Set(remainingMs > 0 ? run.claims.map(({ claim }) => claim.id) : []);
  const ids = [];
  for (const { claim, isHeld, revokeReason } of session.records) {
    if (isHeld && revokeReason === null && runClaimIds.has(claim.id)) ids.push(claim.id);
  }
  try {
    if (ids.length > 0) await backend.detach(session, ids, remainingMs);
  } catch {
    // it is held for now; that a disk cannot be written stands in the log, and the file is left to the next start
    return;
  }
  run.remove();
}
