/**
 * Restores runs that survived the previous run of the server. Each file lists the run's claims, so they are restored as
 * they were, and no other key has to wait. A wrapper that reconnects finds its claims by their ids.
 */

import { deniedPrincipal } from "../../auth/access-control.ts";
import type { ReclaimItem } from "../../protocol/frames.ts";
import type { Clock } from "../../util/clock.ts";
import type { Logger } from "../logger.ts";
import type { CommandRun, LivingRuns } from "../runs/command-run.ts";
import { Session } from "../session/session.ts";
import type { SessionRegistry } from "../session/session-registry.ts";
import type { RecoveryReason, SavedClaim } from "../storage/storage.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";
import type { LocalBackend } from "./local-backend.ts";

/** The recovery of a start without runs. */
interface RecoveryWait {
  readonly reason: RecoveryReason | null;
  readonly durationMs: number;
  readonly expectedSessions: ReadonlySet<string> | null;
}

/**
 * The recovery does not wait for the session of a run, whose claims are known. If a run file is damaged, no new locks
 * are granted for as long as a living client may take to reconnect: an unknown lock must not stop the server from
 * granting forever.
 */
export function adjustForRuns<T extends RecoveryWait>(plan: T, { runs, hasUnreadable }: LivingRuns): T {
  if (hasUnreadable)
    return { ...plan, reason: plan.reason ?? "runs", durationMs: MAX_UNJOURNALED_MS, expectedSessions: null };
  if (plan.expectedSessions === null) return plan;
  const knownSessions = new Set(runs.map(({ session }) => session));
  return { ...plan, expectedSessions: new Set([...plan.expectedSessions].filter((id) => !knownSessions.has(id))) };
}

/** Restores the claims of the runs before anything is granted. Sessions of the saved state exist already. */
export function restoreRuns(
  backend: LocalBackend,
  sessions: SessionRegistry,
  { runs }: LivingRuns,
  clock: Clock,
): void {
  for (const run of runs) {
    const session = findOrCreateSession(sessions, run, clock);
    sessions.restore(session, run);
    // an existing claim came from the saved state, which may know more: its revocation, or its longest hold time
    for (const saved of toSavedClaims(run))
      if (backend.findClaim(saved.claim.id) === undefined) backend.restore(saved, session);
  }
}

/**
 * The same for a run found later, because its wrapper died after the start. Its claims are reclaimed like those of any
 * client.
 */
export function restoreLateRun(backend: LocalBackend, session: Session, run: CommandRun, log: Logger): void {
  const items = toSavedClaims(run).map(({ claim, token, tokenCount, remainingMs }): ReclaimItem => {
    return { claim, lastState: { state: "held", token: BigInt(token), tokenCount, remainingMs } };
  });
  const onFailure = (error: unknown): void => log("cannot restore the locks of a run", error);
  try {
    Promise.resolve(backend.reclaim(session, items, true)).catch(onFailure);
  } catch (error) {
    onFailure(error);
  }
}

function findOrCreateSession(
  sessions: SessionRegistry,
  { session: id, label, wrapper }: CommandRun,
  clock: Clock,
): Session {
  const existing = sessions.byId.get(id);
  if (existing !== undefined) return existing;
  const session = new Session({ session: id, label, ...wrapper }, true, clock.now());
  session.principal = deniedPrincipal("");
  return session;
}

/** The remaining lease is unknown, so each claim gets its full lease again. */
function toSavedClaims({ session: sessionId, claims }: CommandRun): SavedClaim[] {
  return claims.map(({ claim, firstToken }) => {
    const remainingMs = claim.ttlMs === "session" ? 0 : claim.ttlMs;
    const held = { token: Number(firstToken), tokenCount: 1, remainingMs, arrival: 0 };
    return { claim, ...held, isDetached: false, revokeReason: null, sessionId, account: "" };
  });
}
