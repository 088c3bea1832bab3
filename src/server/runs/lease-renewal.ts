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
 * Detaches the claims of a run that is over for what is left of `--hold-at-least`. The file of the run must stay until this
 * settles: a server that dies before leaves it to the next one.
 * @throws (rejects) RequestError if the disk fails: the session still holds them then
 */
export async function detachForRemainder(backend: Backend, session: Session, run: CommandRun): Promise<void> {
  const runClaimIds = new Set(run.claims.map(({ claim }) => claim.id));
  const ids = [];
  for (const { claim, isHeld, revokeReason } of session.records) {
    if (isHeld && revokeReason === null && runClaimIds.has(claim.id)) ids.push(claim.id);
  }
  if (ids.length > 0) await backend.detach(session, ids, run.remainingHoldMs());
}
