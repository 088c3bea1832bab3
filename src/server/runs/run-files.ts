/**
 * The files of runs, as a server reads them. Each stands in the server's folder under a name that follows from the
 * session of its wrapper, so that one of a session that ends is found without looking at the others.
 *
 * Invariant: a run is over only when every process it names is gone (id and start time) and the kernel's lock on its file
 * is free. A process cannot be mistaken for another that was given its id, nor a command that closed the descriptor with
 * the lock be taken for gone. A command that its wrapper had no time to name is looked for by its environment, in which
 * the run's reference stands: it, too, may have closed the descriptor by then.
 */

import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, statSync, unlinkSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { flock } from "../../util/flock.ts";
import { publicTag } from "../../util/ids.ts";
import type { Logger } from "../config/logger.ts";
import { findProcessesByEnvironment, probeProcess, readBootId, readPidNamespace } from "../session/process-probe.ts";
import type { ProcessState } from "../session/session.ts";
import { ensurePrivateDirectory } from "../storage/private-files.ts";
import type { CommandRun, CommandRuns, LivingRuns, RunStatus } from "./command-run.ts";
import { NO_COMMAND_RUNS } from "./command-run.ts";
import type { RunProcess, RunRecord, RunRole } from "./run-file-format.ts";
import { decodeRunRecord } from "./run-file-format.ts";

const RUN_SUFFIX = ".run";
/** A file that is being made has another name until it is whole. */
const TEMPORARY_SUFFIX = ".new";
/** No maker takes so long: it has died. */
const ABANDONED_AFTER_MS = 60_000;
/** A file of the most and the longest keys has less. */
const MAX_FILE_BYTES = 1_048_576;
/** Processes are looked at soon at first: what was just killed ends within milliseconds. */
const MIN_PROBE_MS = 5;
const MAX_PROBE_MS = 100;
/** A longer one does not fit into the server's hello. */
const MAX_PATH_CHARS = 1_000;
/** It is there, but cannot be read. */
const UNREADABLE = Symbol("unreadable");
/** To ask for the lock starts a process. */
const LOCK_PROBE_INTERVAL_MS = 1_000;

/**
 * The folder with the files of runs: in the server's state, else beside its socket. null: no run comes by a socket, or
 * the locks are another store's.
 */
export function resolveRunDirectory(state: string | undefined, socket: string | null): string | null {
  if (socket === null || state === undefined) return null;
  const inState = join(resolve(state), "runs");
  return state === "none" || inState.length > MAX_PATH_CHARS ? `${socket}.runs` : inState;
}

/** The file of a session's run. */
export function runFilePath(directory: string, session: string): string {
  return join(directory, `${publicTag(session)}${RUN_SUFFIX}`);
}

/** Under this name it is made. */
export function temporaryRunFilePath(directory: string, session: string): string {
  return join(directory, `${publicTag(session)}${TEMPORARY_SUFFIX}`);
}

/**
 * Makes the folder if it is missing.
 * @throws (rejects) StateError if somebody else could reach what is in it
 */
export async function openCommandRuns(directory: string, log: Logger): Promise<CommandRuns> {
  // where the socket is wanted there is no folder: the start fails, and makes none
  if (statSync(dirname(directory), { throwIfNoEntry: false })?.isDirectory() !== true) return NO_COMMAND_RUNS;
  await ensurePrivateDirectory(directory, (message) => log(message, undefined, { level: "warn" }));
  return {
    find: (session) => openRunFile(runFilePath(directory, session), session, log),
    findLiving: () => findLivingRuns(directory, log),
  };
}

async function findLivingRuns(directory: string, log: Logger): Promise<LivingRuns> {
  const runs: CommandRun[] = [];
  let hasUnreadable = false;
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    if (name.endsWith(TEMPORARY_SUFFIX)) removeAbandoned(path, log);
    if (!name.endsWith(RUN_SUFFIX)) continue;
    const run = openRunFile(path, null, log);
    if (run === null) continue;
    const status = await probeUntilKnown(run);
    if (status === "over" && run.remainingHoldMs() === 0) {
      run.remove();
    } else if (run.isDamaged) {
      log(`${path} is damaged: what its run holds is not known, so nothing new is granted for a while`, undefined, {
        level: "warn",
      });
      hasUnreadable = true;
    } else if (status !== "unnamed") {
      runs.push(run);
    }
  }
  return { runs, hasUnreadable };
}

/** What it is when the lock has been asked for, if need be. */
async function probeUntilKnown(run: StoredRun): Promise<RunStatus> {
  const { status } = run.probe();
  if (!run.isProbingLock) return status;
  await run.waitForLockProbe();
  return run.probe().status;
}

/** A file of a run; the session of a damaged one is not known from it. */
function openRunFile(path: string, session: string | null, log: Logger): StoredRun | null {
  const text = readRunFile(path);
  return text === null ? null : new StoredRun(path, session, text === UNREADABLE ? null : decodeRunRecord(text), log);
}

class StoredRun implements CommandRun {
  readonly session: string;
  readonly label: string;
  readonly claims: readonly DetachedClaim[];
  readonly wrapper: CommandRun["wrapper"];
  readonly isDamaged: boolean;
  readonly #path: string;
  readonly #log: Logger;
  readonly #holdUntil: number;
  /** Processes of the run that its file does not name. */
  #unnamedProcesses: readonly RunProcess[] = [];
  #probeCount = 0;
  #lockStatus: "unasked" | "asking" | "held" | "free" | "unknown" = "unasked";
  #lockProbe: Promise<void> | null = null;
  #lockProbedAt = 0;

  constructor(path: string, session: string | null, record: RunRecord | null, log: Logger) {
    this.#path = path;
    this.#log = log;
    this.isDamaged = record === null;
    this.session = record?.session ?? session ?? "";
    this.label = record?.label ?? "";
    this.#holdUntil = record?.holdUntil ?? 0;
    this.claims = record === null || (record.isEnded && this.remainingHoldMs() === 0) ? [] : record.claims;
    const wrapper = record?.processes.find(({ role }) => role === "wrapper");
    this.wrapper = { pid: wrapper?.pid ?? null, pidStart: wrapper?.start ?? null };
  }

  /** Is the lock being asked for? */
  get isProbingLock(): boolean {
    return this.#lockProbe !== null;
  }

  async waitForLockProbe(): Promise<void> {
    await this.#lockProbe;
  }

  remainingHoldMs(): number {
    return Math.max(this.#holdUntil - Date.now(), 0);
  }

  probe(): { readonly status: RunStatus; readonly nextProbeMs: number } {
    const nextProbeMs = Math.min(MIN_PROBE_MS * 2 ** this.#probeCount++, MAX_PROBE_MS);
    const text = readRunFile(this.#path);
    if (text === null) return { status: "unnamed", nextProbeMs };
    if (text === UNREADABLE) return { status: "unknown", nextProbeMs };
    const record = decodeRunRecord(text);
    const states = record === null ? [] : probeProcesses(record, this.#unnamedProcesses);
    const aliveRoles = states.filter(([, state]) => state === "running" || state === "stopped").map(([role]) => role);
    if (record !== null && hasWork(record, aliveRoles)) return { status: "works", nextProbeMs };
    if (aliveRoles.includes("wrapper") && !(record?.isEnded === true && this.remainingHoldMs() > 0))
      return { status: "held", nextProbeMs };
    if (record?.isEnded === true) return { status: "over", nextProbeMs };
    const hasUnknown = states.some(([, state]) => state === "unknown");
    const byLock = record?.locked === false ? (hasUnknown ? "unknown" : "over") : this.#statusByLock(hasUnknown);
    if (byLock === "over" && record !== null && this.#findUnnamedProcesses(record))
      return { status: "works", nextProbeMs };
    return { status: byLock, nextProbeMs: this.#lockStatus === "held" ? LOCK_PROBE_INTERVAL_MS : nextProbeMs };
  }

  /** Has the command been started, and its wrapper died before it could name it? */
  #findUnnamedProcesses({ boot, reference, processes }: RunRecord): boolean {
    if (boot !== readBootId() || processes.some(({ role }) => role === "command")) return false;
    this.#unnamedProcesses = findProcessesByEnvironment(`HOLDFAST_REFERENCE=${reference}`).map((process) => ({
      role: "command",
      ...process,
    }));
    return this.#unnamedProcesses.length > 0;
  }

  /** Nobody named is known to live: a process that they started, or one we cannot see, may. */
  #statusByLock(hasUnknown: boolean): RunStatus {
    if (this.#lockStatus === "unasked" || performance.now() >= this.#lockProbedAt + LOCK_PROBE_INTERVAL_MS)
      this.#probeLock();
    if (this.#lockStatus === "asking" || this.#lockStatus === "held") return "works";
    return hasUnknown || (this.#lockStatus === "unknown" && this.isDamaged) ? "unknown" : "over";
  }

  #probeLock(): void {
    if (this.#lockProbe !== null) return;
    this.#lockProbedAt = performance.now();
    if (this.#lockStatus === "unasked") [this.#lockStatus, this.#probeCount] = ["asking", 0];
    this.#lockProbe = probeFileLock(this.#path).then((lock) => {
      this.#lockStatus = lock;
      this.#lockProbe = null;
    });
  }

  remove(): void {
    tryToRemove(this.#path, this.#log);
  }
}

/**
 * Does anything work under it, by the processes that live? A watchdog whose wrapper lives guards a command, or will: as
 * long as none is named there is none, or the watchdog ends it before the lease does. Of a run that has ended a watchdog
 * may be left, which its wrapper has not dismissed.
 */
function hasWork({ isEnded, processes }: RunRecord, aliveRoles: readonly RunRole[]): boolean {
  if (isEnded) return false;
  const hasBegun = processes.some(({ role }) => role === "command") || !aliveRoles.includes("wrapper");
  return aliveRoles.includes("command") || (aliveRoles.includes("watchdog") && hasBegun);
}

/** Ids of an earlier boot are nobody's; those of another space (a container) tell nothing. */
function probeProcesses(record: RunRecord, unnamed: readonly RunProcess[]): (readonly [RunRole, ProcessState])[] {
  const { boot, space, processes } = record;
  const currentBoot = readBootId();
  if (boot !== null && currentBoot !== null && boot !== currentBoot) return [];
  const isSameNamespace = space === readPidNamespace();
  return [...processes, ...unnamed].map(({ role, pid, start }) => {
    return [role, isSameNamespace && start !== null ? probeProcess(pid, start) : "unknown"] as const;
  });
}

/** Has anybody the lock on this file? */
async function probeFileLock(path: string): Promise<"held" | "free" | "unknown"> {
  let descriptor: number | null = null;
  try {
    descriptor = openIfExists(path);
    if (descriptor === null) return "unknown";
    const result = await flock(descriptor, "shared");
    return result === "missing" ? "unknown" : result === "taken" ? "held" : "free";
  } catch {
    // no process or descriptor is left just now: that is no answer, and it is asked again in a second
    return "held";
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}

/** Null: there is no such file. One that is too long is as good as empty. */
function readRunFile(path: string): string | typeof UNREADABLE | null {
  let descriptor: number | null = null;
  try {
    descriptor = openIfExists(path);
    if (descriptor === null) return null;
    return fstatSync(descriptor).size > MAX_FILE_BYTES ? "" : readFileSync(descriptor, "utf8");
  } catch {
    // no descriptor is left just now, or the disk fails: that is no answer, and it is asked again
    return UNREADABLE;
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}

function openIfExists(path: string): number | null {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    return openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

function removeAbandoned(path: string, log: Logger): void {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats !== undefined && Date.now() - stats.mtimeMs > ABANDONED_AFTER_MS) tryToRemove(path, log);
}

/** A file that stays, as on a file system that has become read-only, names a run that is over: the next start finds that out. */
function tryToRemove(path: string, log: Logger): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") log(`${path} cannot be removed`, error, { level: "warn" });
  }
}
