/** The keeper at the start and at the end of a server: what is read from disk, and what is left there. */

import type { Clock } from "../clock.ts";
import { newId } from "../ids.ts";
import type { ClaimId } from "../spi/driver.ts";
import { stranger } from "./access.ts";
import { Refusal } from "./backend.ts";
import type { Disk, Found, SavedClaim, SavedSession, SavedState } from "./disk.ts";
import { isLong, SHORT_MS, shortLease } from "./durability.ts";
import { Keeper } from "./keeper.ts";
import { AHEAD_MICROS, Ledger } from "./ledger.ts";
import type { ServerLimits } from "./limits.ts";
import { DEFAULT_LIMITS, widest } from "./limits.ts";
import type { Log } from "./logging.ts";
import type { RecoveryPlan } from "./reclaiming.ts";
import { NO_RECOVERY } from "./reclaiming.ts";
import type { Record } from "./record.ts";
import type { Runs } from "./run-life.ts";
import { NO_RUNS } from "./run-life.ts";
import { restoreFound, restoreRuns, waitingBeside } from "./run-restoring.ts";
import { nextToken, savedOf, savedSession } from "./saved.ts";
import type { ProcessProbe } from "./session.ts";
import { Session, Sessions } from "./session.ts";

/** A start sets this aside for leases to come, so that the usual ones need no write of their own: the default ttl. */
const USUAL_MS = 30_000;

export interface OpeningOptions {
  readonly clock: Clock;
  /** null: nothing is saved, and every start reclaims. */
  readonly disk: Disk | null;
  /** Without a disk: the operator says that nothing of an earlier run can be held. Default false. */
  readonly firstStart?: boolean;
  readonly sessionMs: number;
  /** Clients may come over something else than a Unix socket. */
  readonly remote: boolean;
  readonly probe: ProcessProbe;
  /** Runs that outlive their wrappers and this server. Default: there are none. */
  readonly runs?: Runs;
  readonly log: Log;
  readonly limits?: ServerLimits;
  /** Told of all that happens. Default: nobody is. */
  readonly record?: Record;
}

/** What a plan depends on besides what was found. */
export type PlanOptions = Pick<OpeningOptions, "remote" | "sessionMs">;

/** Every start of a server that keeps nothing. */
const STATELESS: RecoveryPlan = {
  reason: "stateless",
  reclaimMs: SHORT_MS,
  boundAtStart: Number.POSITIVE_INFINITY,
  awaited: null,
  takesLong: false,
};

export interface Opened {
  readonly keeper: Keeper;
  readonly sessions: Sessions;
  /** Leaves the table for the next start. Nothing may be asked of the keeper any more. */
  save(): Promise<void>;
}

/** What follows from what was found. */
export interface StartPlan extends RecoveryPlan {
  readonly claims: readonly SavedClaim[];
  readonly sessions: readonly SavedSession[];
  /** What stands on the disk from now on. */
  readonly state: SavedState;
}

/** @throws whatever the disk does: a server that cannot save its state must not start */
export async function openKeeper(options: OpeningOptions): Promise<Opened> {
  const { clock, disk, sessionMs, log, probe, limits, record, runs = NO_RUNS, firstStart = false } = options;
  const common = { clock, sessionMs, log, ...(limits && { limits }), ...(record && { record }) };
  const living = await runs.living();
  if (disk === null) {
    const recovery = waitingBeside(firstStart ? NO_RECOVERY : STATELESS, living);
    const keeper = new Keeper({ ...common, recovery, identity: null, ledger: null, note: () => undefined });
    const sessions = new Sessions(keeper, clock, probe, sessionMs, runs);
    restoreRuns(keeper, sessions, living, clock);
    restoreFound(keeper, sessions, log);
    keeper.start();
    return { keeper, sessions, save: async () => undefined };
  }
  const found = await disk.load();
  const plan = waitingBeside(startPlanOf(found, Math.floor(clock.wall() * 1_000), options), living);
  const { claims, sessions: saved } = plan;
  const formerRoom = plan.reclaimMs > 0 ? widest(limits ?? DEFAULT_LIMITS, found.state?.room) : undefined;
  const state = { ...plan.state, room: formerRoom ?? widest(limits ?? DEFAULT_LIMITS) };
  const journal = claims.filter(({ token, detached, claim }) => token > 0 && (detached || isLong(claim.ttlMs)));
  // before the first answer: the table that was saved is used once
  await disk.begin({ state, journal: journal.map((put) => ({ put })), sessions: saved });
  const ledger = new Ledger({ disk, now: () => clock.now(), state, reclaims: plan.reclaimMs > 0, journal });
  const keeper = new Keeper({
    ...common,
    recovery: plan,
    identity: state,
    ledger,
    note: noter(disk),
    ...(formerRoom && { formerRoom }),
  });
  const sessions = new Sessions(keeper, clock, probe, sessionMs, runs);
  sessions.forgotten = ({ id }) => {
    try {
      disk.unnote(id);
    } catch (error) {
      log("the list of sessions could not be written", error);
    }
  };
  restore(keeper, sessions, plan, clock);
  restoreRuns(keeper, sessions, living, clock);
  restoreFound(keeper, sessions, log);
  keeper.start();
  return { keeper, sessions, save: () => save(keeper, sessions, ledger, clock) };
}

/** What a server does that finds this. */
export function startPlanOf(found: Found, micros: number, { remote, sessionMs }: PlanOptions): StartPlan {
  const { state, fresh } = found;
  const clean = state?.clean ?? null;
  const next = {
    id: state?.id ?? newId(),
    generation: (state?.generation ?? 0) + 1,
    bound: Math.max(micros, state?.bound ?? 0) + AHEAD_MICROS,
  };
  if (fresh || (clean !== null && clean.recovery === null)) {
    const claims = clean?.claims ?? [];
    const longestMs = Math.max(longestOf(claims, sessionMs), USUAL_MS);
    return {
      ...NO_RECOVERY,
      boundAtStart: state?.bound ?? 0,
      claims,
      sessions: clean?.sessions ?? [],
      state: { ...next, longestMs, remote, strangers: false, clean: null },
    };
  }
  const recovery = recoveryOf(found);
  return {
    ...recovery,
    claims: clean?.claims ?? fromJournal(found),
    sessions: clean?.sessions ?? found.sessions ?? [],
    state: {
      ...next,
      longestMs: state?.longestMs ?? SHORT_MS,
      remote: remote || (state?.remote ?? true),
      // a crash before they have had their time must not make the next start forget them
      strangers: recovery.awaited === null,
      clean: null,
    },
  };
}

/** How a start goes on after one that did not end cleanly, or that was stopped before its own recovery was over. */
function recoveryOf(found: Found): RecoveryPlan {
  const { state } = found;
  // without a state file nothing is known of what was granted
  if (state === null) {
    const all = { boundAtStart: Number.POSITIVE_INFINITY, awaited: null };
    return { ...all, reason: "missing", reclaimMs: SHORT_MS, takesLong: found.journal === null };
  }
  const rest = state.clean?.recovery ?? null;
  if (rest === null) {
    const awaited = awaitedOf(state, found);
    return { reason: "crash", boundAtStart: state.bound, reclaimMs: state.longestMs, awaited, takesLong: false };
  }
  const { reason, leftMs, bound, awaited } = rest;
  return {
    reason,
    boundAtStart: bound ?? Number.POSITIVE_INFINITY,
    reclaimMs: leftMs,
    awaited: awaited && new Set(awaited),
    takesLong: bound === null,
  };
}

/** Which sessions may still hold; null: that cannot be known. */
function awaitedOf(state: SavedState, { sessions, sameBoot }: Found): ReadonlySet<string> | null {
  if (state.strangers) return null;
  // the list was not durable, but no process of this machine has outlived it
  if (!sameBoot) return state.remote ? null : new Set();
  return sessions && new Set(sessions.map(({ id }) => id));
}

/** The claims of the journal. How much time has passed is not known, so each has its whole lease again. */
function fromJournal({ journal }: Found): SavedClaim[] {
  const live = new Map<ClaimId, SavedClaim>();
  for (const record of journal ?? []) {
    if ("drop" in record) live.delete(record.drop);
    else live.set(record.put.claim.id, { ...record.put, leftMs: Number(record.put.claim.ttlMs) });
  }
  return [...live.values()];
}

/** The longest lease of these that a restart would have to wait for. */
function longestOf(claims: readonly SavedClaim[], sessionMs: number): number {
  return claims.reduce((most, { claim }) => Math.max(most, shortLease(claim.ttlMs, sessionMs)), 0);
}

function restore(keeper: Keeper, sessions: Sessions, plan: StartPlan, clock: Clock): void {
  const known = new Map<string, Session>();
  const sessionOf = (saved: SavedSession): Session => {
    const session = new Session({ ...saved, session: saved.id }, saved.local, clock.now());
    // until it has come back and shown its credential
    session.principal = stranger(saved.by ?? "");
    known.set(saved.id, session);
    return session;
  };
  // a session known only by its claims in the journal stands in no list yet: it is noted when it claims something
  for (const saved of plan.sessions) sessionOf(saved).noted = true;
  for (const saved of plan.claims) {
    const { session: id, by = "" } = saved;
    const nobody = { local: false, label: "", pid: null, pidStart: null, by };
    keeper.restore(saved, id === null ? null : (known.get(id) ?? sessionOf({ id, ...nobody })));
  }
  for (const session of known.values()) sessions.restore(session);
}

/** Notes each session in the plain file of those who may hold something. */
function noter(disk: Disk): (session: Session) => void {
  return (session) => {
    try {
      disk.note(savedSession(session));
    } catch (error) {
      throw new Refusal("DISK", "the server cannot write its state; it grants nothing that needs it", error);
    }
    session.noted = true;
  };
}

async function save(keeper: Keeper, sessions: Sessions, ledger: Ledger, clock: Clock): Promise<void> {
  await ledger.settled();
  const now = clock.now();
  const claims = [...keeper.table.entries.values()].map((entry) => savedOf(entry, now));
  // what nobody has told yet is missing from the table: the next start goes on asking for the rest of the time
  const clean = { claims, sessions: [...sessions.all.values()].map(savedSession), recovery: keeper.recovery.saved() };
  await ledger.finish({ bound: nextToken(keeper.table), clean });
}
