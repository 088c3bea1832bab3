/**
 * Runs that outlived the last server: what each holds is known from its file, so it is put back as it was, and no other
 * key waits for it. A wrapper that comes back finds its claims, which are the same by their ids.
 */

import type { ReclaimItem } from "../../protocol/frames.ts";
import type { Clock } from "../../util/clock.ts";
import { deniedPrincipal } from "../auth/access-control.ts";
import type { Logger } from "../config/logger.ts";
import type { LocalBackend } from "../local/local-backend.ts";
import type { SessionRegistry } from "../session/session.ts";
import { Session } from "../session/session.ts";
import type { RecoveryReason, SavedClaim } from "../storage/storage.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";
import type { CommandRun, LivingRuns } from "./command-run.ts";

/** What a start would wait for if there were no runs. */
interface RecoveryWait {
  readonly reason: RecoveryReason | null;
  readonly durationMs: number;
  readonly expectedSessions: ReadonlySet<string> | null;
}

/**
 * Nobody waits for the session of a run: what it holds is known. Where that cannot be told nothing new is granted for as
 * long as a client that is still there may take to come back: a lock that cannot be named must not keep its server from
 * granting anything for ever.
 */
export function adjustForRuns<T extends RecoveryWait>(plan: T, { runs, hasUnreadable }: LivingRuns): T {
  if (hasUnreadable)
    return { ...plan, reason: plan.reason ?? "runs", durationMs: MAX_UNJOURNALED_MS, expectedSessions: null };
  if (plan.expectedSessions === null) return plan;
  const knownSessions = new Set(runs.map(({ session }) => session));
  return { ...plan, expectedSessions: new Set([...plan.expectedSessions].filter((id) => !knownSessions.has(id))) };
}

/** Puts back what the runs hold, before anything is granted. Sessions from the state stand already. */
export function restoreRuns(
  backend: LocalBackend,
  sessions: SessionRegistry,
  { runs }: LivingRuns,
  clock: Clock,
): void {
  for (const run of runs) {
    const session = findOrCreateSession(sessions, run, clock);
    sessions.restore(session, run);
    // what stands already came from the state, which may know more: that it was revoked, for how long it may be held
    for (const saved of toSavedClaims(run))
      if (backend.findClaim(saved.claim.id) === undefined) backend.restore(saved, session);
  }
}

/** The same of a run that was found later, because its wrapper died after the start: it tells what it has as any client. */
export function restoreLateRuns(backend: LocalBackend, sessions: SessionRegistry, log: Logger): void {
  sessions.onRunFound = (session, run) => {
    const items = toSavedClaims(run).map(({ claim, token, tokens, leftMs }): ReclaimItem => {
      return { claim, lastState: { state: "held", token: BigInt(token), tokens, leftMs } };
    });
    const onFailure = (error: unknown): void => log("what a run holds could not be restored", error);
    try {
      Promise.resolve(backend.reclaim(session, items, true)).catch(onFailure);
    } catch (error) {
      onFailure(error);
    }
  };
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

/** How much of a lease is left is not known, so each claim has its whole lease again. */
function toSavedClaims({ session, claims }: CommandRun): SavedClaim[] {
  return claims.map(({ claim, firstToken }) => {
    const leftMs = claim.ttlMs === "session" ? 0 : claim.ttlMs;
    const held = { token: Number(firstToken), tokens: 1, leftMs, arrival: 0 };
    return { claim, ...held, detached: false, revoked: false, session };
  });
}
