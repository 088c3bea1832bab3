/** Opens a server's backend: its own lock table, or a proxy for another store. */

import type { Driver } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { acquireFileLock } from "../util/file-lock.ts";
import { probeProcess } from "../util/process-info.ts";
import type { Backend } from "./backend.ts";
import type { ServerLimits } from "./config/limits.ts";
import type { Logger } from "./config/logger.ts";
import type { ServeOptions } from "./config/options.ts";
import type { EventLog } from "./events/event-log.ts";
import type { MetricsRecorder } from "./events/metrics.ts";
import type { OpenedBackend } from "./local/startup.ts";
import { openLocalBackend } from "./local/startup.ts";
import { openProxyBackend } from "./proxy/proxy-backend.ts";
import { NO_COMMAND_RUNS } from "./runs/command-run.ts";
import { openCommandRuns } from "./runs/run-files.ts";
import type { SessionRegistry } from "./session/session-registry.ts";
import { StateError } from "./storage/private-files.ts";
import type { DirectoryStorage } from "./storage/state-directory.ts";
import { openStateDirectory } from "./storage/state-directory.ts";

/** How long a session survives without contact. */
const SESSION_MS = 30_000;

/** A backend with what the server needs to run it. */
export interface BackendHandle {
  readonly backend: Backend;
  readonly sessions: SessionRegistry;
  claimCount(): number;
  /** Why new locks cannot be granted, judged by the most recent attempt; null if no problem is known. */
  unhealthyReason(): string | null;
  /** Why the server must stop: another server may be using its state. Null: it may go on. */
  lostReason(): string | null;
  /**
   * To be called after the clients were informed.
   * @throws StateError if the state could not be saved; all resources are released even so
   */
  close(): Promise<void>;
}

export interface OpenBackendOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Clients may connect by something other than a Unix socket. */
  readonly remote: boolean;
  readonly limits: ServerLimits;
  readonly eventLog: EventLog;
  /** The directory of the run files; null if there is none. */
  readonly runDirectory: string | null;
  /** Called after each durable write, with its outcome. */
  readonly onWrite: MetricsRecorder["recordWrite"];
}

/** @throws StateError if the state cannot be used; any error of the driver's open() */
export async function openBackend(
  { driver, state, firstStart }: ServeOptions,
  options: OpenBackendOptions,
): Promise<BackendHandle> {
  const { onWrite, runDirectory, ...common } = options;
  if (driver !== undefined) return openProxy(driver, common);
  const { log } = options;
  const first = firstStart === undefined ? {} : { firstStart };
  const localOptions = { sessionMs: SESSION_MS, probe: probeProcess, ...common, ...first };
  const openLocal = async (storage: MonitoredStorage | null): Promise<BackendHandle> => {
    const commandRuns = runDirectory === null ? NO_COMMAND_RUNS : await openCommandRuns(runDirectory, log);
    return toBackendHandle(await openLocalBackend({ ...localOptions, storage, commandRuns }), storage);
  };
  if (state === "none") return openLocal(null);
  const directory = await openStateDirectory(state as string, {
    acquireLock: acquireFileLock,
    log: (message) => log(message, undefined, { level: "warn" }),
    ...first,
  });
  const storage = monitorWrites(directory, onWrite, options);
  try {
    return await openLocal(storage);
  } catch (error) {
    await storage.close();
    throw error;
  }
}

async function openProxy(
  driver: Driver,
  options: Omit<OpenBackendOptions, "onWrite" | "runDirectory">,
): Promise<BackendHandle> {
  return openProxyBackend({ driver, sessionMs: SESSION_MS, probe: probeProcess, ...options });
}

function toBackendHandle({ backend, sessions, save }: OpenedBackend, storage: MonitoredStorage | null): BackendHandle {
  return {
    backend,
    sessions,
    claimCount: () => backend.table.records.size,
    unhealthyReason: () => storage?.unhealthyReason() ?? null,
    lostReason: () => storage?.lostReason() ?? null,
    async close() {
      backend.drain();
      try {
        await save();
      } catch (error) {
        throw new StateError("the state could not be saved: the next start will begin with a recovery", error);
      } finally {
        await storage?.close();
      }
    },
  };
}

interface MonitoredStorage extends DirectoryStorage {
  /** The problem with durable writes: the last write of a kind failed, or one has stalled; null if there is none. */
  unhealthyReason(): string | null;
}

const WRITES_FAILING = "the state directory is not writable: locks that must be persisted are refused";
const WRITES_STALLED = "a write to the state directory has stalled: locks that must be persisted are refused";
/** A write that takes longer than this counts as stalled. */
const STALL_MS = 5_000;

/**
 * Counts durable writes and remembers whether the last one of each kind succeeded. Only the first failure and the
 * recovery from it are logged: on a full disk there may be one failure a second.
 */
function monitorWrites(
  storage: DirectoryStorage,
  onWrite: MetricsRecorder["recordWrite"],
  { log, clock }: OpenBackendOptions,
): MonitoredStorage {
  const failed = { state: false, journal: false };
  const isFailing = (): boolean => failed.state || failed.journal;
  /** Start time of the pending write of each kind. At most one per kind is pending. */
  const startedAt = { state: Number.POSITIVE_INFINITY, journal: Number.POSITIVE_INFINITY };
  const isStalled = (): boolean => Math.min(startedAt.state, startedAt.journal) + STALL_MS <= clock.now();
  async function track<T>(file: "journal" | "state", write: Promise<T>): Promise<T> {
    const wasFailing = isFailing();
    startedAt[file] = clock.now();
    try {
      const result = await write;
      failed[file] = false;
      if (wasFailing && !isFailing()) log("the state directory is writable again");
      return result;
    } catch (error) {
      failed[file] = true;
      if (!wasFailing) log(WRITES_FAILING, error);
      throw error;
    } finally {
      startedAt[file] = Number.POSITIVE_INFINITY;
      onWrite(file, !failed[file]);
    }
  }
  return {
    load: () => storage.load(),
    beginRun: (start) => storage.beginRun(start),
    saveState: (state) => track("state", storage.saveState(state)),
    appendJournal: (records) => track("journal", storage.appendJournal(records)),
    rewriteJournal: (records) => track("journal", storage.rewriteJournal(records)),
    addSession: (session) => storage.addSession(session),
    removeSession: (id) => storage.removeSession(id),
    lostReason: () => storage.lostReason(),
    close: () => storage.close(),
    unhealthyReason: () => (isFailing() ? WRITES_FAILING : isStalled() ? WRITES_STALLED : null),
  };
}
