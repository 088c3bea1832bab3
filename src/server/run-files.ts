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
import { tagOf } from "../ids.ts";
import type { Referenced } from "../reference.ts";
import { privateFolder } from "./files.ts";
import { flock } from "./flock.ts";
import type { Log } from "./logging.ts";
import { bootId, processesWith, processSpace, processState } from "./processes.ts";
import type { LivingRuns, Run, RunLife, Runs } from "./run-life.ts";
import { NO_RUNS } from "./run-life.ts";
import type { RunProcess, RunRecord, RunRole } from "./run-record.ts";
import { runRecordOf } from "./run-record.ts";
import type { ProcessState } from "./session.ts";

const SUFFIX = ".run";
/** A file that is being made has another name until it is whole. */
const NEW_SUFFIX = ".new";
/** No maker takes so long: it has died. */
const ABANDONED_MS = 60_000;
/** A file of the most and the longest keys has less. */
const MOST_BYTES = 1_048_576;
/** Processes are looked at soon at first: what was just killed ends within milliseconds. */
const FIRST_LOOK_MS = 5;
const LONGEST_LOOK_MS = 100;
/** A longer one does not fit into the server's hello. */
const MOST_PATH_CHARS = 1_000;
/** It is there, but cannot be read. */
const UNREADABLE = Symbol("unreadable");
/** To ask for the lock starts a process. */
const LOCK_LOOK_MS = 1_000;

/**
 * The folder with the files of runs: in the server's state, else beside its socket. null: no run comes by a socket, or
 * the locks are another store's.
 */
export function runsFolder(state: string | undefined, socket: string | null): string | null {
  if (socket === null || state === undefined) return null;
  const inState = join(resolve(state), "runs");
  return state === "none" || inState.length > MOST_PATH_CHARS ? `${socket}.runs` : inState;
}

/** The file of a session's run. */
export function runPath(folder: string, session: string): string {
  return join(folder, `${tagOf(session)}${SUFFIX}`);
}

/** Under this name it is made. */
export function newRunPath(folder: string, session: string): string {
  return join(folder, `${tagOf(session)}${NEW_SUFFIX}`);
}

/**
 * Makes the folder if it is missing.
 * @throws (rejects) StateError if somebody else could reach what is in it
 */
export async function openRuns(folder: string, log: Log): Promise<Runs> {
  // where the socket is wanted there is no folder: the start fails, and makes none
  if (statSync(dirname(folder), { throwIfNoEntry: false })?.isDirectory() !== true) return NO_RUNS;
  await privateFolder(folder, (message) => log(message, undefined, { level: "warn" }));
  return {
    find: (session) => found(runPath(folder, session), session),
    living: () => living(folder, log),
  };
}

async function living(folder: string, log: Log): Promise<LivingRuns> {
  const runs: Run[] = [];
  let unreadable = false;
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (name.endsWith(NEW_SUFFIX)) removeAbandoned(path);
    if (!name.endsWith(SUFFIX)) continue;
    const run = found(path, null);
    if (run === null) continue;
    const life = await settled(run);
    if (life === "over" && run.leftMs() === 0) {
      run.remove();
    } else if (run.damaged) {
      log(`${path} is damaged: what its run holds is not known, so nothing new is granted for a while`, undefined, {
        level: "warn",
      });
      unreadable = true;
    } else if (life !== "unnamed") {
      runs.push(run);
    }
  }
  return { runs, unreadable };
}

/** What it is when the lock has been asked for, if need be. */
async function settled(run: RunFile): Promise<RunLife> {
  const { life } = run.look();
  if (!run.asking) return life;
  await run.asked();
  return run.look().life;
}

/** A file of a run; the session of a damaged one is not known from it. */
function found(path: string, session: string | null): RunFile | null {
  const text = readText(path);
  return text === null ? null : new RunFile(path, session, text === UNREADABLE ? null : runRecordOf(text));
}

class RunFile implements Run {
  readonly session: string;
  readonly label: string;
  readonly claims: readonly Referenced[];
  readonly wrapper: Run["wrapper"];
  readonly damaged: boolean;
  readonly #path: string;
  readonly #holdUntil: number;
  /** Processes of the run that its file does not name. */
  #unnamed: readonly RunProcess[] = [];
  #looks = 0;
  #lock: "unasked" | "asking" | "held" | "free" | "unknown" = "unasked";
  #asking: Promise<void> | null = null;
  #askedAt = 0;

  constructor(path: string, session: string | null, record: RunRecord | null) {
    this.#path = path;
    this.damaged = record === null;
    this.session = record?.session ?? session ?? "";
    this.label = record?.label ?? "";
    this.#holdUntil = record?.holdUntil ?? 0;
    this.claims = record === null || (record.ended && this.leftMs() === 0) ? [] : record.claims;
    const wrapper = record?.processes.find(({ role }) => role === "wrapper");
    this.wrapper = { pid: wrapper?.pid ?? null, pidStart: wrapper?.start ?? null };
  }

  /** Is the lock being asked for? */
  get asking(): boolean {
    return this.#asking !== null;
  }

  async asked(): Promise<void> {
    await this.#asking;
  }

  leftMs(): number {
    return Math.max(this.#holdUntil - Date.now(), 0);
  }

  look(): { readonly life: RunLife; readonly againMs: number } {
    const againMs = Math.min(FIRST_LOOK_MS * 2 ** this.#looks++, LONGEST_LOOK_MS);
    const text = readText(this.#path);
    if (text === null) return { life: "unnamed", againMs };
    if (text === UNREADABLE) return { life: "unknown", againMs };
    const record = runRecordOf(text);
    const states = record === null ? [] : statesOf(record, this.#unnamed);
    const living = states.filter(([, state]) => state === "running" || state === "stopped").map(([role]) => role);
    if (record !== null && works(record, living)) return { life: "works", againMs };
    if (living.includes("wrapper") && !(record?.ended === true && this.leftMs() > 0)) return { life: "held", againMs };
    if (record?.ended === true) return { life: "over", againMs };
    const unsure = states.some(([, state]) => state === "unknown");
    const byLock = record?.locked === false ? (unsure ? "unknown" : "over") : this.#lookAtLock(unsure);
    if (byLock === "over" && record !== null && this.#findUnnamed(record)) return { life: "works", againMs };
    return { life: byLock, againMs: this.#lock === "held" ? LOCK_LOOK_MS : againMs };
  }

  /** Has the command been started, and its wrapper died before it could name it? */
  #findUnnamed({ boot, reference, processes }: RunRecord): boolean {
    if (boot !== bootId() || processes.some(({ role }) => role === "command")) return false;
    this.#unnamed = processesWith(`HOLDFAST_REFERENCE=${reference}`).map((one) => ({ role: "command", ...one }));
    return this.#unnamed.length > 0;
  }

  /** Nobody named is known to live: a process that they started, or one we cannot see, may. */
  #lookAtLock(unsure: boolean): RunLife {
    if (this.#lock === "unasked" || performance.now() >= this.#askedAt + LOCK_LOOK_MS) this.#ask();
    if (this.#lock === "asking" || this.#lock === "held") return "works";
    return unsure || (this.#lock === "unknown" && this.damaged) ? "unknown" : "over";
  }

  #ask(): void {
    if (this.#asking !== null) return;
    this.#askedAt = performance.now();
    if (this.#lock === "unasked") [this.#lock, this.#looks] = ["asking", 0];
    this.#asking = lockOf(this.#path).then((lock) => {
      this.#lock = lock;
      this.#asking = null;
    });
  }

  remove(): void {
    removed(this.#path);
  }
}

/**
 * Does anything work under it, by the processes that live? A watchdog whose wrapper lives guards a command, or will: as
 * long as none is named there is none, or the watchdog ends it before the lease does. Of a run that has ended a watchdog
 * may be left, which its wrapper has not dismissed.
 */
function works({ ended, processes }: RunRecord, living: readonly RunRole[]): boolean {
  if (ended) return false;
  const hasBegun = processes.some(({ role }) => role === "command") || !living.includes("wrapper");
  return living.includes("command") || (living.includes("watchdog") && hasBegun);
}

/** Ids of an earlier boot are nobody's; those of another space (a container) tell nothing. */
function statesOf(record: RunRecord, more: readonly RunProcess[]): (readonly [RunRole, ProcessState])[] {
  const { boot, space, processes } = record;
  const now = bootId();
  if (boot !== null && now !== null && boot !== now) return [];
  const isOurs = space === processSpace();
  return [...processes, ...more].map(({ role, pid, start }) => {
    return [role, isOurs && start !== null ? processState(pid, start) : "unknown"] as const;
  });
}

/** Has anybody the lock on this file? */
async function lockOf(path: string): Promise<"held" | "free" | "unknown"> {
  let descriptor: number | null = null;
  try {
    descriptor = opened(path);
    if (descriptor === null) return "unknown";
    const found = await flock(descriptor, "shared");
    return found === "missing" ? "unknown" : found === "taken" ? "held" : "free";
  } catch {
    // no process or descriptor is left just now: that is no answer, and it is asked again in a second
    return "held";
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}

/** Null: there is no such file. One that is too long is as good as empty. */
function readText(path: string): string | typeof UNREADABLE | null {
  let descriptor: number | null = null;
  try {
    descriptor = opened(path);
    if (descriptor === null) return null;
    return fstatSync(descriptor).size > MOST_BYTES ? "" : readFileSync(descriptor, "utf8");
  } catch {
    // no descriptor is left just now, or the disk fails: that is no answer, and it is asked again
    return UNREADABLE;
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}

function opened(path: string): number | null {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    return openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

function removeAbandoned(path: string): void {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats !== undefined && Date.now() - stats.mtimeMs > ABANDONED_MS) removed(path);
}

function removed(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}
