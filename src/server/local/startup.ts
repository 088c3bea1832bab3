/** Starts the local backend from what is on disk, and saves its state at the end. */

import type { LockTable } from "../../lock-table/table.ts";
import type { ProcessProbe } from "../../os/process-info.ts";
import type { ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { randomId } from "../../util/ids.ts";
import { deniedPrincipal } from "../auth/access-control.ts";
import type { EventLog } from "../events/event-log.ts";
import type { ServerLimits } from "../limits.ts";
import { widestLimits } from "../limits.ts";
import type { Logger } from "../logger.ts";
import { diskError } from "../request-error.ts";
import type { CommandRuns, LivingRuns } from "../runs/command-run.ts";
import { Session } from "../session/session.ts";
import { SessionRegistry } from "../session/session-registry.ts";
import { CEILING_LEAD_MICROS } from "../storage/durable-log.ts";
import type { MonitoredStorage, MonitorOptions } from "../storage/monitored-storage.ts";
import { monitorWrites } from "../storage/monitored-storage.ts";
import { StateError } from "../storage/private-files.ts";
import type { LoadedState, SavedClaim, SavedSession, SavedState, Storage } from "../storage/storage.ts";
import { MAX_UNJOURNALED_MS, needsJournal, unjournaledLeaseMs } from "../storage/write-ahead.ts";
import { LocalBackend } from "./local-backend.ts";
import type { RecoveryPlan } from "./recovery-window.ts";
import { NO_RECOVERY } from "./recovery-window.ts";
import { adjustForRuns, restoreLateRun, restoreRuns } from "./run-recovery.ts";

/**
 * Each start reserves this lease length in advance, so that leases of usual length need no write of their own: the
 * default ttl.
 */
const DEFAULT_LEASE_MS = 30_000;

export interface OpenLocalBackendOptions {
  readonly clock: Clock;
  /** null: nothing is saved, and every start begins with a recovery. */
  readonly storage: Storage | null;
  /** Without storage: the operator confirms that no lock of an earlier run can be held. */
  readonly firstStart: boolean;
  readonly sessionMs: number;
  /** Clients may connect by something other than a Unix socket. */
  readonly remote: boolean;
  readonly probe: ProcessProbe;
  /** Runs of `holdfast run` that survive their wrappers and this server. */
  readonly commandRuns: CommandRuns;
  readonly log: Logger;
  readonly limits: ServerLimits;
  /** Receives all events. */
  readonly eventLog: EventLog;
  readonly onWrite: MonitorOptions["onWrite"];
}

/** What the plan depends on besides the loaded state. */
export type StartupPlanOptions = Pick<OpenLocalBackendOptions, "remote" | "sessionMs">;

/** The plan of every start without saved state. */
const STATELESS_RECOVERY: RecoveryPlan = {
  reason: "stateless",
  durationMs: MAX_UNJOURNALED_MS,
  ceilingAtStart: Number.POSITIVE_INFINITY,
  expectedSessions: null,
  acceptsJournaled: false,
};

export interface OpenedBackend {
  readonly backend: LocalBackend;
  readonly sessions: SessionRegistry;
  /**
   * Saves the table for the next start and closes the storage. To be called after the clients were informed; the backend
   * must not be used afterwards.
   * @throws StateError if the state could not be saved; the storage is closed even so
   */
  close(): Promise<void>;
}

/** The plan derived from the loaded state. */
export interface StartupPlan extends RecoveryPlan {
  readonly claims: readonly SavedClaim[];
  readonly sessions: readonly SavedSession[];
  /** The state to be on disk from now on. */
  readonly state: SavedState;
}

/** @throws any error of the storage: a server that cannot save its state must not start */
export async function openLocalBackend(options: OpenLocalBackendOptions): Promise<OpenedBackend> {
  const livingRuns = await options.commandRuns.findLiving();
  return options.storage === null
    ? openStateless(options, livingRuns)
    : openDurable(options, monitorWrites(options.storage, options), livingRuns);
}

function openStateless(options: OpenLocalBackendOptions, livingRuns: LivingRuns): OpenedBackend {
  const { clock, sessionMs, log, limits, eventLog, probe, commandRuns, firstStart } = options;
  const backend = new LocalBackend({
    clock,
    sessionMs,
    log,
    limits,
    eventLog,
    recoveryPlan: adjustForRuns(firstStart ? NO_RECOVERY : STATELESS_RECOVERY, livingRuns),
    identity: null,
    durableState: null,
    persistSession: () => undefined,
    unhealthyReason: () => null,
  });
  const registry = new SessionRegistry(backend, clock, probe, sessionMs, commandRuns, {
    onRunFound: (session, run) => restoreLateRun(backend, session, run, log),
  });
  restoreRuns(backend, registry, livingRuns, clock);
  backend.start();
  return { backend, sessions: registry, close: async () => backend.drain() };
}

async function openDurable(
  options: OpenLocalBackendOptions,
  storage: MonitoredStorage,
  livingRuns: LivingRuns,
): Promise<OpenedBackend> {
  const { clock, sessionMs, log, probe, limits, eventLog, commandRuns } = options;
  const loadedState = await storage.load();
  const startupPlan = adjustForRuns(planStartup(loadedState, Math.floor(clock.wall() * 1_000), options), livingRuns);
  const { claims, sessions: saved } = startupPlan;
  const isRecovering = startupPlan.durationMs > 0;
  // also after a clean stop: the claims that it has saved may be reported after a crash of this run
  const formerLimits =
    isRecovering || claims.length > 0 ? widestLimits(limits, loadedState.state?.claimLimits) : undefined;
  const state = { ...startupPlan.state, claimLimits: formerLimits ?? widestLimits(limits) };
  const journal = claims.filter(
    ({ token, isDetached, claim }) => token > 0 && (isDetached || needsJournal(claim.ttlMs)),
  );
  // before the first answer, because a saved table may be used only once
  await storage.beginRun({ state, journal: journal.map((put) => ({ put })), sessions: saved });
  const backend = new LocalBackend({
    clock,
    sessionMs,
    log,
    limits,
    eventLog,
    recoveryPlan: startupPlan,
    identity: state,
    durableState: { storage, state, isRecovering, journal },
    persistSession: createSessionPersister(storage),
    unhealthyReason: () => storage.unhealthyReason(),
    ...(formerLimits && { formerLimits }),
  });
  const registry = new SessionRegistry(backend, clock, probe, sessionMs, commandRuns, {
    onForgotten: ({ id }) => {
      try {
        storage.removeSession(id);
      } catch (error) {
        log("cannot write the list of sessions", error);
      }
    },
    onRunFound: (session, run) => restoreLateRun(backend, session, run, log),
  });
  restoreState(backend, registry, startupPlan, clock);
  restoreRuns(backend, registry, livingRuns, clock);
  backend.start();
  const close = async (): Promise<void> => {
    backend.drain();
    try {
      await saveSnapshot(backend, registry);
    } catch (error) {
      throw new StateError("the state could not be saved: the next start will begin with a recovery", error);
    } finally {
      await storage.close();
    }
  };
  return { backend, sessions: registry, close };
}

/** Decides how to start, given the loaded state. */
export function planStartup(
  loadedState: LoadedState,
  micros: number,
  { remote, sessionMs }: StartupPlanOptions,
): StartupPlan {
  const { state, isFirstStart } = loadedState;
  const clean = state?.clean ?? null;
  const nextState = {
    id: state?.id ?? randomId(),
    generation: (state?.generation ?? 0) + 1,
    tokenCeiling: Math.max(micros, state?.tokenCeiling ?? 0) + CEILING_LEAD_MICROS,
  };
  if (isFirstStart || (clean !== null && clean.recovery === null)) {
    const claims = clean?.claims ?? [];
    const longestLeaseMs = Math.max(findLongestLease(claims, sessionMs), DEFAULT_LEASE_MS);
    return {
      ...NO_RECOVERY,
      ceilingAtStart: state?.tokenCeiling ?? 0,
      claims,
      sessions: clean?.sessions ?? [],
      state: { ...nextState, longestLeaseMs, remote, hasUnknownHolders: false, clean: null },
    };
  }
  const recovery = planRecovery(loadedState);
  return {
    ...recovery,
    claims: clean?.claims ?? claimsFromJournal(loadedState),
    sessions: clean?.sessions ?? loadedState.sessions ?? [],
    state: {
      ...nextState,
      longestLeaseMs: state?.longestLeaseMs ?? MAX_UNJOURNALED_MS,
      remote: remote || (state?.remote ?? true),
      // if the server crashes before these sessions had their time, the next start must still expect them
      hasUnknownHolders: recovery.expectedSessions === null,
      clean: null,
    },
  };
}

/** Plans the start after one that did not end cleanly, or that was stopped during its own recovery. */
function planRecovery(loadedState: LoadedState): RecoveryPlan {
  const { state } = loadedState;
  // without a state file nothing is known about earlier grants
  if (state === null) {
    const unknownState = { ceilingAtStart: Number.POSITIVE_INFINITY, expectedSessions: null };
    return {
      ...unknownState,
      reason: "missing",
      durationMs: MAX_UNJOURNALED_MS,
      acceptsJournaled: loadedState.journal === null,
    };
  }
  const savedRecovery = state.clean?.recovery ?? null;
  if (savedRecovery === null) {
    const expectedSessions = findExpectedSessions(state, loadedState);
    return {
      reason: "crash",
      ceilingAtStart: state.tokenCeiling,
      durationMs: state.longestLeaseMs,
      expectedSessions,
      acceptsJournaled: false,
    };
  }
  const { reason, remainingMs, tokenCeiling, expectedSessions } = savedRecovery;
  return {
    reason,
    ceilingAtStart: tokenCeiling ?? Number.POSITIVE_INFINITY,
    durationMs: remainingMs,
    expectedSessions: expectedSessions && new Set(expectedSessions),
    acceptsJournaled: tokenCeiling === null,
  };
}

/** The sessions that may still be holders; null: unknown. */
function findExpectedSessions(state: SavedState, { sessions, isSameBoot }: LoadedState): ReadonlySet<string> | null {
  if (state.hasUnknownHolders) return null;
  // the list was not durable, but after a reboot no process of this machine is left
  if (!isSameBoot) return state.remote ? null : new Set();
  return sessions && new Set(sessions.map(({ id }) => id));
}

/** The claims of the journal. The elapsed time is unknown, so each gets its full lease again (decision 0011). */
function claimsFromJournal({ journal }: LoadedState): SavedClaim[] {
  const claims = new Map<ClaimId, SavedClaim>();
  for (const record of journal ?? []) {
    if ("drop" in record) claims.delete(record.drop);
    else claims.set(record.put.claim.id, { ...record.put, remainingMs: Number(record.put.claim.ttlMs) });
  }
  return [...claims.values()];
}

/** The longest lease among these claims that a restart would have to wait for. */
function findLongestLease(claims: readonly SavedClaim[], sessionMs: number): number {
  return claims.reduce((longest, { claim }) => Math.max(longest, unjournaledLeaseMs(claim.ttlMs, sessionMs)), 0);
}

function restoreState(backend: LocalBackend, sessions: SessionRegistry, startupPlan: StartupPlan, clock: Clock): void {
  const restored = new Map<string, Session>();
  const createSession = (saved: SavedSession): Session => {
    const session = new Session({ ...saved, session: saved.id }, saved.isLocal, clock.now());
    // until the client has reconnected and authenticated
    session.principal = deniedPrincipal(saved.account);
    restored.set(saved.id, session);
    return session;
  };
  // a session known only from claims in the journal is in no list yet: it is added when it claims something
  for (const saved of startupPlan.sessions) createSession(saved).isPersisted = true;
  for (const saved of startupPlan.claims) {
    const { sessionId: id, account } = saved;
    const unknownClient = { isLocal: false, label: "", pid: null, pidStart: null, account };
    backend.restore(saved, id === null ? null : (restored.get(id) ?? createSession({ id, ...unknownClient })));
  }
  for (const session of restored.values()) sessions.restore(session);
}

/** Adds each session to the plain file of sessions that may be holders. */
function createSessionPersister(storage: Storage): (session: Session) => void {
  return (session) => {
    try {
      storage.addSession(toSavedSession(session));
    } catch (error) {
      throw diskError(error);
    }
    session.isPersisted = true;
  };
}

async function saveSnapshot(backend: LocalBackend, sessions: SessionRegistry): Promise<void> {
  const { durableLog } = backend;
  await durableLog?.waitUntilIdle();
  const claims = [...backend.table.records.values()].map((record) => backend.toSavedClaim(record));
  // claims that were not reclaimed yet are missing from the table: the next start continues the recovery for the rest
  // of its time
  const clean = {
    claims,
    sessions: [...sessions.byId.values()].map(toSavedSession),
    recovery: backend.recoveryWindow.toSavedRecovery(),
  };
  await durableLog?.finish({ tokenCeiling: findNextToken(backend.table), clean });
}

function toSavedSession({ id, isLocal, label, pid, pidStart, principal }: Session): SavedSession {
  return { id, isLocal, label, pid, pidStart, account: principal.name };
}

/** The lowest number above every token that was granted. */
function findNextToken(table: LockTable): number {
  let nextFree = table.tokenIssuer.clock;
  for (const queue of table.queues.values()) nextFree = Math.max(nextFree, queue.lastToken);
  return nextFree + 1;
}
