/**
 * Reads the run files of a server. Each is in the server's directory under a name derived from the session of its
 * wrapper, so that the run of a session that ends is found without reading the others.
 *
 * Invariant: a run is over only when every process in its file has ended (by id and start time) and the kernel's lock
 * on the file is free. Then a process cannot be mistaken for another one with the same id, and a command that closed
 * the descriptor of the lock is not taken for dead. A command that its wrapper had no time to record is found by its
 * environment, which contains the run's reference: it, too, may have closed the descriptor by then.
 *
 * A process of another pid namespace is found by the id that it has there, if our namespace sees it. Where it does not,
 * a free lock proves nothing, for the same reason: the run is unknown.
 */

import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, statSync, unlinkSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { flock } from "../../os/flock.ts";
import type { ProcessId, ProcessState } from "../../os/process-info.ts";
import {
  findInNamespace,
  findProcessesByVariable,
  findProcessWithOpenFile,
  probeProcess,
  readBootId,
  readPidNamespace,
  readProcessName,
} from "../../os/process-info.ts";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { systemClock } from "../../util/clock.ts";
import type { Logger } from "../logger.ts";
import { ensurePrivateDirectory } from "../storage/private-files.ts";
import type { CommandRun, CommandRuns, LivingRuns, RunStatus } from "./command-run.ts";
import { NO_COMMAND_RUNS } from "./command-run.ts";
import type { RunProcess, RunRecord, RunRole } from "./run-file-format.ts";
import { decodeRunRecord, RUN_SUFFIX, runFilePath, TEMPORARY_SUFFIX } from "./run-file-format.ts";

/** Creating a file never takes this long: its creator has died. */
const ABANDONED_AFTER_MS = 60_000;
/** Even a file with the most and longest keys is smaller. */
const MAX_FILE_BYTES = 1_048_576;
/** The first probes follow soon: a killed process ends within milliseconds. */
const MIN_PROBE_MS = 5;
const MAX_PROBE_MS = 100;
/** A longer path does not fit into the server's handshake. */
const MAX_PATH_CHARS = 1_000;
/** The file exists, but cannot be read. */
const UNREADABLE = Symbol("unreadable");
/** Probing the lock starts a process. */
const LOCK_PROBE_INTERVAL_MS = 1_000;

/**
 * The directory of the run files: in the server's state directory, else beside its socket. null: no run connects by a
 * socket, or another store keeps the locks.
 */
export function resolveRunDirectory(state: string | undefined, socket: string | null): string | null {
  if (socket === null || state === undefined) return null;
  const inState = join(resolve(state), "runs");
  return state === "none" || inState.length > MAX_PATH_CHARS ? `${socket}.runs` : inState;
}

/**
 * Creates the directory if it is missing.
 * @throws (rejects) StateError if another user could access its contents
 */
export async function openCommandRuns(directory: string, log: Logger): Promise<CommandRuns> {
  // without the socket's directory the start fails, so nothing is created
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
    const isOver = status === "over" && run.remainingHoldMs() === 0;
    if (isOver) run.remove();
    // also one that is over: its locks may have to stay held after its end
    if (run.isDamaged && !(isOver && run.isEmpty)) {
      log(`${path} is damaged: the locks of its run are unknown, so nothing new is granted for a while`, undefined, {
        level: "warn",
      });
      hasUnreadable = true;
    } else if (!isOver && status !== "unnamed") {
      runs.push(run);
    }
  }
  return { runs, hasUnreadable };
}

/** The status after probing the lock, if that is necessary. */
async function probeUntilKnown(run: StoredRun): Promise<RunStatus> {
  const { status } = run.probe();
  if (!run.isProbingLock) return status;
  await run.waitForLockProbe();
  return run.probe().status;
}

/** A run file; the session of a damaged one cannot be read from it. */
function openRunFile(path: string, session: string | null, log: Logger): StoredRun | null {
  const text = readRunFile(path);
  return text === null ? null : new StoredRun(path, session, text, log);
}

class StoredRun implements CommandRun {
  readonly session: string;
  readonly label: string;
  readonly claims: readonly DetachedClaim[];
  readonly wrapper: CommandRun["wrapper"];
  readonly isDamaged: boolean;
  /** After a loss of power the file of a run that need not survive one; the other kind was on the disk before. */
  readonly isEmpty: boolean;
  readonly #path: string;
  readonly #log: Logger;
  /** null: the file is damaged. */
  readonly #hold: Pick<RunRecord, "boot" | "holdUntil" | "holdUntilUptime"> | null;
  /** Processes of the run that its file does not contain. */
  #unnamedProcesses: readonly ProcessId[] = [];
  /** The ids that processes of another namespace have in ours. */
  readonly #located = new Map<string, ProcessId | "gone" | "unknown">();
  /** Keeps the claims after the end of the wrapper. */
  #keeper: ProcessId | null = null;
  #probeCount = 0;
  #lockStatus: "unasked" | "asking" | "held" | "free" | "unknown" = "unasked";
  #lockProbe: Promise<void> | null = null;
  #lockProbedAt = 0;

  constructor(path: string, session: string | null, text: string | typeof UNREADABLE, log: Logger) {
    const record = text === UNREADABLE ? null : decodeRunRecord(text);
    this.#path = path;
    this.#log = log;
    this.isDamaged = record === null;
    this.isEmpty = text !== UNREADABLE && /^\0*$/.test(text);
    this.session = record?.session ?? session ?? "";
    this.label = record?.label ?? "";
    this.#hold = record;
    this.claims = record === null || (record.isEnded && this.remainingHoldMs() === 0) ? [] : record.claims;
    // an id of another namespace would be taken for a process that has ended
    const isOurNamespace = record?.space === readPidNamespace();
    const wrapper = isOurNamespace ? record?.processes.find(({ role }) => role === "wrapper") : undefined;
    this.wrapper = { pid: wrapper?.pid ?? null, pidStart: wrapper?.start ?? null };
  }

  get keeper(): string | null {
    const name = this.#keeper !== null && this.#isKeeperAlive() ? readProcessName(this.#keeper.pid) : null;
    return name === null ? null : `pid ${this.#keeper?.pid} (${name})`;
  }

  /** True while the lock is being probed. */
  get isProbingLock(): boolean {
    return this.#lockProbe !== null;
  }

  async waitForLockProbe(): Promise<void> {
    await this.#lockProbe;
  }

  remainingHoldMs(): number {
    if (this.#hold === null) return 0;
    const { boot, holdUntil, holdUntilUptime } = this.#hold;
    const isSameBoot = boot !== null && boot === readBootId();
    return Math.max(isSameBoot ? holdUntilUptime - systemClock.uptime() : holdUntil - systemClock.wall(), 0);
  }

  probe(): { readonly status: RunStatus; readonly nextProbeMs: number } {
    const nextProbeMs = Math.min(MIN_PROBE_MS * 2 ** this.#probeCount++, MAX_PROBE_MS);
    const text = readRunFile(this.#path);
    if (text === null) return { status: "unnamed", nextProbeMs };
    if (text === UNREADABLE) return { status: "unknown", nextProbeMs };
    const record = decodeRunRecord(text);
    const processes = record === null ? [] : this.#probeProcesses(record);
    const alive = processes.filter(({ state }) => state === "running" || state === "stopped");
    const aliveRoles = alive.map(({ role }) => role);
    this.#keeper = aliveRoles.includes("wrapper") ? null : (alive.at(-1)?.id ?? this.#keeper);
    if (record !== null && hasWork(record, aliveRoles)) return { status: "works", nextProbeMs };
    if (aliveRoles.includes("wrapper") && !(record?.isEnded === true && this.remainingHoldMs() > 0))
      return { status: "held", nextProbeMs };
    if (record?.isEnded === true) return { status: "over", nextProbeMs };
    const hasUnknown = processes.some(({ state }) => state === "unknown");
    const byLock = record?.locked === false ? (hasUnknown ? "unknown" : "over") : this.#statusByLock(hasUnknown);
    if (byLock === "over" && record !== null && this.#findUnnamedProcesses(record))
      return { status: "works", nextProbeMs };
    return { status: byLock, nextProbeMs: this.#lockStatus === "held" ? LOCK_PROBE_INTERVAL_MS : nextProbeMs };
  }

  /**
   * In the order of the file, so that the command, if there is one, comes after the watchdog that was started with it.
   */
  #probeProcesses(record: RunRecord): { role: RunRole; id: ProcessId | null; state: ProcessState }[] {
    const currentBoot = readBootId();
    // ids from before a reboot are meaningless
    if (record.boot !== null && currentBoot !== null && record.boot !== currentBoot) return [];
    const located = record.processes.map((process) => ({
      role: process.role,
      id: this.#locate(process, record.space),
    }));
    const unnamed = this.#unnamedProcesses.map((id) => ({ role: "command" as const, id }));
    return [...located, ...unnamed].map(({ role, id }) =>
      typeof id === "string" ? { role, id: null, state: id } : { role, id, state: probeProcess(id.pid, id.start) },
    );
  }

  #locate({ pid, start }: RunProcess, space: string | null): ProcessId | "gone" | "unknown" {
    if (start === null || space === null) return "unknown";
    if (space === readPidNamespace()) return { pid, start };
    const key = `${pid} ${start}`;
    const known = this.#located.get(key);
    if (known !== undefined) return known;
    try {
      const found = findInNamespace(space, pid, start);
      this.#located.set(key, found);
      return found;
    } catch {
      // no descriptor is available right now: that proves nothing, and the process is looked for again
      return "unknown";
    }
  }

  /** True if the command was started, but its wrapper died before it could record it. */
  #findUnnamedProcesses({ boot, reference, processes }: RunRecord): boolean {
    if (boot !== readBootId() || processes.some(({ role }) => role === "command")) return false;
    this.#unnamedProcesses = findProcessesByVariable("HOLDFAST_REFERENCE").filter(({ value }) => value === reference);
    return this.#unnamedProcesses.length > 0;
  }

  /** No recorded process is known to be alive, but one of their children, or one that we cannot see, may be. */
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
      if (lock === "held" && !this.#isKeeperAlive()) this.#keeper = findUser(this.#path);
    });
  }

  #isKeeperAlive(): boolean {
    return this.#keeper !== null && probeProcess(this.#keeper.pid, this.#keeper.start) !== "gone";
  }

  remove(): void {
    tryToRemove(this.#path, this.#log);
  }
}

/**
 * True if the living processes still protect work. A watchdog with a living wrapper guards a command, or will: while
 * none is recorded there is none, or the watchdog ends it before the lease does. After the end of a run its watchdog
 * may be left, which the wrapper has not stopped.
 */
function hasWork({ isEnded, processes }: RunRecord, aliveRoles: readonly RunRole[]): boolean {
  if (isEnded) return false;
  const hasBegun = processes.some(({ role }) => role === "command") || !aliveRoles.includes("wrapper");
  return aliveRoles.includes("command") || (aliveRoles.includes("watchdog") && hasBegun);
}

/** Whether any process has the lock on this file. */
async function probeFileLock(path: string): Promise<"held" | "free" | "unknown"> {
  let descriptor: number | null = null;
  try {
    descriptor = openIfExists(path);
    if (descriptor === null) return "unknown";
    const result = await flock(descriptor, "shared");
    return result === "missing" ? "unknown" : result === "taken" ? "held" : "free";
  } catch {
    // no process or descriptor is available right now: that proves nothing, and the lock is probed again in a second
    return "held";
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}

/** A process that has the file open, and so the lock on it; null: unknown. */
function findUser(path: string): ProcessId | null {
  try {
    return findProcessWithOpenFile(statSync(path));
  } catch {
    // only people read it
    return null;
  }
}

/** Null: there is no such file. One that is too long is treated as empty. */
function readRunFile(path: string): string | typeof UNREADABLE | null {
  let descriptor: number | null = null;
  try {
    descriptor = openIfExists(path);
    if (descriptor === null) return null;
    return fstatSync(descriptor).size > MAX_FILE_BYTES ? "" : readFileSync(descriptor, "utf8");
  } catch {
    // no descriptor is available right now, or the disk fails: that proves nothing, and the file is read again
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

/**
 * A file that cannot be removed, as on a read-only file system, belongs to a finished run, which the next start
 * detects.
 */
function tryToRemove(path: string, log: Logger): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") log(`${path} cannot be removed`, error, { level: "warn" });
  }
}
