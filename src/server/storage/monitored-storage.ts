/** The storage of a server with a judgement of its health, for /ready, metrics and the log. */

import type { Clock } from "../../util/clock.ts";
import type { Logger } from "../logger.ts";
import type { Storage } from "./storage.ts";

const WRITES_FAILING = "the state directory is not writable: locks that must be persisted are refused";
const WRITES_STALLED = "a write to the state directory has stalled: locks that must be persisted are refused";
/** A write that takes longer than this counts as stalled. */
const STALL_MS = 5_000;

export interface MonitoredStorage extends Storage {
  /** The problem with durable writes: the last write of a kind failed, or one has stalled; null if there is none. */
  unhealthyReason(): string | null;
}

export interface MonitorOptions {
  readonly log: Logger;
  readonly clock: Clock;
  /** Called after each durable write, with its outcome. */
  readonly onWrite: (file: "journal" | "state", isOk: boolean) => void;
}

/**
 * Counts durable writes and remembers whether the last one of each kind succeeded. Only the first failure and the
 * recovery from it are logged: on a full disk there may be one failure a second.
 */
export function monitorWrites(storage: Storage, { log, clock, onWrite }: MonitorOptions): MonitoredStorage {
  const failed = { state: false, journal: false };
  const isFailing = (): boolean => failed.state || failed.journal;
  /** Start time of the pending write of each kind. At most one per kind is pending. */
  const startedAt = { state: Number.POSITIVE_INFINITY, journal: Number.POSITIVE_INFINITY };
  const isStalled = (): boolean => Math.min(startedAt.state, startedAt.journal) + STALL_MS <= clock.now();
  async function track<T>(file: "journal" | "state", write: Promise<T>, isComplete = true): Promise<T> {
    const wasFailing = isFailing();
    let isWritten = false;
    startedAt[file] = clock.now();
    try {
      const result = await write;
      isWritten = true;
      if (isComplete) failed[file] = false;
      if (wasFailing && !isFailing()) log("the state directory is writable again");
      return result;
    } catch (error) {
      failed[file] = true;
      if (!wasFailing) log(WRITES_FAILING, error);
      throw error;
    } finally {
      startedAt[file] = Number.POSITIVE_INFINITY;
      onWrite(file, isWritten);
    }
  }
  return {
    load: () => storage.load(),
    beginRun: (start) => storage.beginRun(start),
    saveState: (state) => track("state", storage.saveState(state)),
    // after a failure there may be room for ended claims only, until the journal is rewritten
    appendJournal: (records, claimCount) => track("journal", storage.appendJournal(records, claimCount), false),
    rewriteJournal: (records) => track("journal", storage.rewriteJournal(records)),
    addSession: (session) => storage.addSession(session),
    removeSession: (id) => storage.removeSession(id),
    close: () => storage.close(),
    unhealthyReason: () => (isFailing() ? WRITES_FAILING : isStalled() ? WRITES_STALLED : null),
  };
}
