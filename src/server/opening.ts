/** The keeper at the start and at the end of a server: what is read from disk, and what is left there. */

import type { Clock } from "../clock.ts";
import type { ClaimId } from "../spi/driver.ts";
import { stranger } from "./access.ts";
import { Refusal } from "./backend.ts";
import type { Disk, Found, SavedClaim, SavedSession, SavedState } from "./disk.ts";
import { isLong, SHORT_MS } from "./durability.ts";
import { Keeper } from "./keeper.ts";
import { AHEAD_MICROS, Ledger } from "./ledger.ts";
import type { ServerLimits } from "./limits.ts";
import type { Log } from "./logging.ts";
import type { Record } from "./record.ts";
import type { Runs } from "./run-life.ts";
import { NO_RUNS } from "./run-life.ts";
import { restoreFound, restoreRuns, waitingBeside } from "./run-restoring.ts";
import { nextToken, savedOf, savedSession } from "./saved.ts";
import type { ProcessProbe } from "./session.ts";
import { Session, Sessions } from "./session.ts";

/** The longest short lease that needs no write of its own: the default ttl. */
const USUAL_MS = 30_000;

export interface OpeningOptions {
  readonly clock: Clock;
  /** null: nothing is saved, and every start reclaims. */
  readonly disk: Disk | null;
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

export interface Opened {
  readonly keeper: Keeper;
  readonly sessions: Sessions;
  /** Leaves the table for the next start. Nothing may be asked of the keeper any more. */
  save(): Promise<void>;
}

/** What follows from what was found. */
interface Plan {
  readonly boundAtStart: number;
  readonly reclaimMs: number;
  readonly awaited: ReadonlySet<string> | null;
  readonly claims: readonly SavedClaim[];
  readonly sessions: readonly SavedSession[];
  /** What stands on the disk from now on. */
  readonly state: SavedState;
}

/** @throws whatever the disk does: a server that cannot save its state must not start */
export async function openKeeper(options: OpeningOptions): Promise<Opened> {
  const { clock, disk, sessionMs, log, probe, limits, record, runs = NO_RUNS } = options;
  const common = { clock, sessionMs, log, ...(limits && { limits }), ...(record && { record }) };
  const living = await runs.living();
  if (disk === null) {
    const none = { ...common, ledger: null, boundAtStart: Number.POSITIVE_INFINITY, awaited: null };
    const keeper = new Keeper({ ...none, reclaimMs: SHORT_MS, note: () => undefined });
    const sessions = new Sessions(keeper, clock, probe, sessionMs, runs);
    restoreRuns(keeper, sessions, living, clock);
    restoreFound(keeper, sessions, log);
    keeper.start();
    return { keeper, sessions, save: async () => undefined };
  }
  const plan = waitingBeside(planOf(await disk.load(), Math.floor(clock.wall() * 1_000), options), living);
  const journal = plan.claims.filter(({ token, detached, claim }) => token > 0 && (detached || isLong(claim.ttlMs)));
  disk.renote(plan.sessions);
  await disk.rewrite(journal.map((put) => ({ put })));
  // before the first answer: the table that was saved is used once
  await disk.save(plan.state);
  const ledger = new Ledger({ disk, now: () => clock.now(), state: plan.state, journal });
  const { boundAtStart, reclaimMs, awaited } = plan;
  const note = noter(disk);
  const keeper = new Keeper({ ...common, ledger, boundAtStart, reclaimMs, awaited, note });
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

function planOf(found: Found, micros: number, { remote }: OpeningOptions): Plan {
  const { state } = found;
  const clean = state?.clean ?? null;
  const bound = Math.max(micros, state?.bound ?? 0) + AHEAD_MICROS;
  if (clean !== null || found.fresh) {
    const claims = clean?.claims ?? [];
    const longestMs = claims.reduce((most, { claim }) => Math.max(most, shortLease(claim.ttlMs)), USUAL_MS);
    return {
      boundAtStart: state?.bound ?? 0,
      reclaimMs: 0,
      awaited: null,
      claims,
      sessions: clean?.sessions ?? [],
      state: { bound, longestMs, remote, strangers: false, clean: null },
    };
  }
  const longestMs = state?.longestMs ?? SHORT_MS;
  const awaited = awaitedOf(found);
  return {
    // without a state file nothing is known of the tokens that were granted
    boundAtStart: state?.bound ?? Number.POSITIVE_INFINITY,
    reclaimMs: longestMs,
    awaited,
    claims: fromJournal(found),
    sessions: found.sessions ?? [],
    // a crash before they have had their time must not make the next start forget them
    state: { bound, longestMs, remote: remote || (state?.remote ?? true), strangers: awaited === null, clean: null },
  };
}

/** Which sessions may still hold; null: that cannot be known. */
function awaitedOf({ state, sessions, sameBoot }: Found): ReadonlySet<string> | null {
  if (state === null || sessions === null || state.strangers) return null;
  if (sameBoot) return new Set(sessions.map(({ id }) => id));
  // the list was not durable, but no process of this machine has outlived it
  return state.remote ? null : new Set();
}

/** The claims of the journal. How much time has passed is not known, so each has its whole lease again. */
function fromJournal({ journal }: Found): SavedClaim[] {
  const live = new Map<ClaimId, SavedClaim>();
  for (const record of journal) {
    if ("drop" in record) live.delete(record.drop);
    else live.set(record.put.claim.id, { ...record.put, leftMs: Number(record.put.claim.ttlMs) });
  }
  return [...live.values()];
}

function shortLease(ttlMs: number | "session"): number {
  return ttlMs === "session" || ttlMs > SHORT_MS ? 0 : ttlMs;
}

function restore(keeper: Keeper, sessions: Sessions, plan: Plan, clock: Clock): void {
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
  // what nobody has told yet would be missing: the next start asks again
  if (keeper.reclaiming) return ledger.settled();
  await ledger.settled();
  const now = clock.now();
  const claims = [...keeper.table.entries.values()].map((entry) => savedOf(entry, now));
  const clean = { claims, sessions: [...sessions.all.values()].map(savedSession) };
  await ledger.finish({ bound: nextToken(keeper.table), clean });
}
