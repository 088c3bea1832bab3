/** Starts the local backend from what is on disk, and saves its state at the end. */

import { deniedPrincipal } from "../../auth/access-control.ts";
import type { ProcessProbe } from "../../os/process-info.ts";
import type { Clock } from "../../util/clock.ts";
import type { EventLog } from "../events/event-log.ts";
import type { ServerLimits } from "../limits.ts";
import { widestLimits } from "../limits.ts";
import type { Logger } from "../logger.ts";
import { diskError } from "../request-error.ts";
import type { CommandRuns, LivingRuns } from "../runs/command-run.ts";
import { Session } from "../session/session.ts";
import { SessionRegistry } from "../session/session-registry.ts";
import type { MonitoredStorage, MonitorOptions } from "../storage/monitored-storage.ts";
import { monitorWrites } from "../storage/monitored-storage.ts";
import { StateError } from "../storage/private-files.ts";
import type { SavedSession, Storage } from "../storage/storage.ts";
import { needsJournal } from "../storage/write-ahead.ts";
import { LocalBackend } from "./local-backend.ts";
import { NO_RECOVERY } from "./recovery-window.ts";
import { adjustForRuns, restoreLateRun, restoreRuns } from "./run-recovery.ts";
import type { StartupPlan } from "./startup-plan.ts";
import { planStartup, STATELESS_RECOVERY } from "./startup-plan.ts";

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

export interface OpenedBackend {
  readonly backend: LocalBackend;
  readonly sessions: SessionRegistry;
  /**
   * Saves the table for the next start and closes the storage. To be called after the clients were informed; the
   * backend must not be used afterwards.
   * @throws StateError if the state could not be saved; the storage is closed even so
   */
  close(): Promise<void>;
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
  backend.recoveryWindow.start();
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
  backend.recoveryWindow.start();
  const close = async (): Promise<void> => {
    backend.drain();
    try {
      await backend.save(registry.clients().map(toSavedSession));
    } catch (error) {
      throw new StateError("the state could not be saved: the next start will begin with a recovery", error);
    } finally {
      await storage.close();
    }
  };
  return { backend, sessions: registry, close };
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

/** Adds a session to the plain file of sessions that may be holders, unless it is there. */
function createSessionPersister(storage: Storage): (session: Session) => void {
  return (session) => {
    if (session.isPersisted) return;
    try {
      storage.addSession(toSavedSession(session));
    } catch (error) {
      throw diskError(error);
    }
    session.isPersisted = true;
  };
}

function toSavedSession({ id, isLocal, label, pid, pidStart, principal }: Session): SavedSession {
  return { id, isLocal, label, pid, pidStart, account: principal.name };
}
