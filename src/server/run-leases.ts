/** Leases of a run whose wrapper cannot renew them any more, for as long as its command works. */

import type { Backend } from "./backend.ts";
import type { Session } from "./session.ts";

/** Renews what has less than half of its lease left. Claims of the session itself need none. */
export function keepLeases(backend: Backend, session: Session, now: number): void {
  const items = [];
  for (const { claim, held, revoked, expiresAt } of session.entries) {
    if (claim.ttlMs === "session" || !held || revoked !== null) continue;
    if (expiresAt - now < claim.ttlMs / 2) items.push({ id: claim.id, claim: null });
  }
  if (items.length > 0) void renewed(backend, session, items);
}

async function renewed(backend: Backend, session: Session, items: Parameters<Backend["renew"]>[1]): Promise<void> {
  try {
    await backend.renew(session, items);
  } catch {
    // a lease over a minute is written: that a disk cannot be stands in the log, and the next look renews again
  }
}
