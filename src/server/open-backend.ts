/** What stands behind a server's hub: our own table, or any store. */

import type { Driver } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { acquireFileLock } from "../util/file-lock.ts";
import type { Backend } from "./backend.ts";
import type { ServerLimits } from "./config/limits.ts";
import type { Logger } from "./config/logger.ts";
import type { EventLog } from "./events/event-log.ts";
import type { MetricsRecorder } from "./events/metrics.ts";
import type { OpenedBackend } from "./local/startup.ts";
import { openLocalBackend } from "./local/startup.ts";
import { openProxyBackend } from "./proxy/proxy-backend.ts";
import { NO_COMMAND_RUNS } from "./runs/command-run.ts";
import { openCommandRuns } from "./runs/run-files.ts";
import type { ServeOptions } from "./server.ts";
import { probeProcess } from "./session/process-probe.ts";
import type { SessionRegistry } from "./session/session.ts";
import { StateError } from "./storage/private-files.ts";
import type { DirectoryStorage } from "./storage/state-directory.ts";
import { openStateDirectory } from "./storage/state-directory.ts";

/** How long a session lasts in silence. */
const SESSION_MS = 30_000;

/** What a server asks of what stands behind it. */
export interface BackendHandle {
  readonly backend: Backend;
  readonly sessions: SessionRegistry;
  claimCount(): number;
  /** Why what is new cannot be granted, as far as the last attempt showed; null: nothing is known. */
  unhealthyReason(): string | null;
  /** Why the server must not go on: others may use its state by now. Null: it may. */
  lostReason(): string | null;
  /** After the clients were told. @throws StateError if the state could not be saved; all is let go of nevertheless */
  close(): Promise<void>;
}

export interface OpenBackendOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Clients may come over something else than a Unix socket. */
  readonly remote: boolean;
  readonly limits: ServerLimits;
  readonly eventLog: EventLog;
  /** The folder with the files of runs; null: there are none. */
  readonly runDirectory: string | null;
  /** Told of every durable write, and whether it was done. */
  readonly onWrite: MetricsRecorder["recordWrite"];
}

/** @throws StateError if the state cannot be used; whatever the driver throws when it is opened */
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
        throw new StateError("the state could not be saved: the next start will ask the clients what they hold", error);
      } finally {
        await storage?.close();
      }
    },
  };
}

interface MonitoredStorage extends DirectoryStorage {
  /** What is wrong with durable writes: the last one of a kind failed, or one hangs; null: nothing. */
  unhealthyReason(): string | null;
}

const WRITES_FAILING = "the state cannot be written: what needs a write is not granted";
const WRITES_STALLED = "the disk does not answer: what needs a write is not granted";
/** A write that takes longer than this hangs, as far as anybody can tell. */
const STALL_MS = 5_000;

/**
 * Tells of durable writes, and remembers whether the last one of each kind was done. The log has the first one that failed,
 * and that all are done again: in between there may be one a second, on a disk that has no room for them.
 */
function monitorWrites(
  storage: DirectoryStorage,
  onWrite: MetricsRecorder["recordWrite"],
  { log, clock }: OpenBackendOptions,
): MonitoredStorage {
  const failed = { state: false, journal: false };
  const isFailing = (): boolean => failed.state || failed.journal;
  /** When the write under way of each kind began: there is one at a time. */
  const startedAt = { state: Number.POSITIVE_INFINITY, journal: Number.POSITIVE_INFINITY };
  const isStalled = (): boolean => Math.min(startedAt.state, startedAt.journal) + STALL_MS <= clock.now();
  async function track<T>(file: "journal" | "state", write: Promise<T>): Promise<T> {
    const wasFailing = isFailing();
    startedAt[file] = clock.now();
    try {
      const result = await write;
      failed[file] = false;
      if (wasFailing && !isFailing()) log("the state can be written again");
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
