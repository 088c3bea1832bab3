/**
 * Runs that outlived the last server: what each holds is known from its file, so it is put back as it was, and no other
 * key waits for it. A wrapper that comes back finds its claims, which are the same by their ids.
 */

import type { Clock } from "../clock.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import { stranger } from "./access.ts";
import type { RecoveryReason, SavedClaim } from "./disk.ts";
import { SHORT_MS } from "./durability.ts";
import type { Keeper } from "./keeper.ts";
import type { Log } from "./logging.ts";
import type { LivingRuns, Run } from "./run-life.ts";
import type { Sessions } from "./session.ts";
import { Session } from "./session.ts";

/** What a start would wait for if there were no runs. */
interface Waiting {
  readonly reason: RecoveryReason | null;
  readonly reclaimMs: number;
  readonly awaited: ReadonlySet<string> | null;
}

/**
 * Nobody waits for the session of a run: what it holds is known. Where that cannot be told nothing new is granted for as
 * long as a client that is still there may take to come back: a lock that cannot be named must not keep its server from
 * granting anything for ever.
 */
export function waitingBeside<T extends Waiting>(plan: T, { runs, unreadable }: LivingRuns): T {
  if (unreadable) return { ...plan, reason: plan.reason ?? "runs", reclaimMs: SHORT_MS, awaited: null };
  if (plan.awaited === null) return plan;
  const named = new Set(runs.map(({ session }) => session));
  return { ...plan, awaited: new Set([...plan.awaited].filter((id) => !named.has(id))) };
}

/** Puts back what the runs hold, before anything is granted. Sessions from the state stand already. */
export function restoreRuns(keeper: Keeper, sessions: Sessions, { runs }: LivingRuns, clock: Clock): void {
  for (const run of runs) {
    const session = sessionOf(sessions, run, clock);
    sessions.restore(session, run);
    // what stands already came from the state, which may know more: that it was revoked, for how long it may be held
    for (const saved of savedOf(run)) if (keeper.owned(saved.claim.id) === undefined) keeper.restore(saved, session);
  }
}

/** The same of a run that was found later, because its wrapper died after the start: it tells what it has as any client. */
export function restoreFound(keeper: Keeper, sessions: Sessions, log: Log): void {
  sessions.found = (session, run) => {
    const items = savedOf(run).map(({ claim, token, tokens, leftMs }): Reclaimed => {
      return { claim, was: { state: "held", token: BigInt(token), tokens, leftMs } };
    });
    const failed = (error: unknown): void => log("what a run holds could not be restored", error);
    try {
      Promise.resolve(keeper.reclaim(session, items, true)).catch(failed);
    } catch (error) {
      failed(error);
    }
  };
}

function sessionOf(sessions: Sessions, { session: id, label, wrapper }: Run, clock: Clock): Session {
  const known = sessions.all.get(id);
  if (known !== undefined) return known;
  const session = new Session({ session: id, label, ...wrapper }, true, clock.now());
  session.principal = stranger("");
  return session;
}

/** How much of a lease is left is not known, so each claim has its whole lease again. */
function savedOf({ session, claims }: Run): SavedClaim[] {
  return claims.map(({ claim, run }) => {
    const leftMs = claim.ttlMs === "session" ? 0 : claim.ttlMs;
    const held = { token: Number(run), tokens: 1, leftMs, arrival: 0 };
    return { claim, ...held, detached: false, revoked: false, session };
  });
}
