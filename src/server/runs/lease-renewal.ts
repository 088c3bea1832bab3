/** Leases of a run whose wrapper can no longer renew them: while its command works, and after its end. */

import type { Backend } from "../backend.ts";
import type { Session } from "../session/session.ts";
import type { CommandRun } from "./command-run.ts";

/** Renews claims with less than half of their lease left. Claims with ttl "session" need no renewal. */
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
    // a lease over a minute is written to disk: a failure is logged there, and the next check renews again
  }
}

/**
 * Detaches the claims of a finished run for the remaining time of `--hold-at-least`. The run file must stay until this
 * settles: if the server ends before, the next one needs it.
 * @throws (rejects) RequestError if the disk fails: the session still owns the claims then
 */
export async function detachForRemainder(backend: Backend, session: Session, run: CommandRun): Promise<void> {
  const runClaimIds = new Set(run.claims.map(({ claim }) => claim.id));
  const ids = [];
  for (const { claim, isHeld, revokeReason } of session.records) {
    if (isHeld && revokeReason === null && runClaimIds.has(claim.id)) ids.push(claim.id);
  }
  if (ids.length > 0) await backend.detach(session, ids, run.remainingHoldMs());
}
