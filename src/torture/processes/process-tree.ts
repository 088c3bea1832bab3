/** Processes as Linux shows them, so that a test can tell who is left of what it started. */

import type { ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

/** A process: its id counts only together with its start, since ids are used again. */
export type ProcessId = { readonly pid: number; readonly start: string };

const STOP_TIMEOUT_MS = 10_000;

type ProcessStat = ProcessId & { readonly state: string; readonly parent: number };

/** Every process that has not ended; those nobody has reaped yet have. */
function listProcesses(): ProcessStat[] {
  return readdirSync("/proc").flatMap((name) => {
    const stat = /^\d+$/.test(name) ? readStat(Number(name)) : null;
    return stat === null ? [] : [stat];
  });
}

/** The process of that id as it is now; null if it has ended. */
export function identifyProcess(pid: number): ProcessId | null {
  return readStat(pid);
}

export function isAlive({ pid, start }: ProcessId): boolean {
  return readStat(pid)?.start === start;
}

/** Everything below a process, not itself. */
export function descendants(pid: number): ProcessId[] {
  const processes = listProcesses();
  const pids = new Set([pid]);
  for (let hasGrown = true; hasGrown; ) {
    hasGrown = false;
    for (const { pid: candidatePid, parent } of processes) {
      if (!pids.has(parent) || pids.has(candidatePid)) continue;
      pids.add(candidatePid);
      hasGrown = true;
    }
  }
  pids.delete(pid);
  return processes.filter((processStat) => pids.has(processStat.pid));
}

/** Those that have this text in their environment, as all have that were started in a folder of that name. */
export function processesWithEnvironment(text: string): ProcessId[] {
  return listProcesses().filter(({ pid }) => readProcFile(`/proc/${pid}/environ`).includes(text));
}

/** Its arguments, with blanks between; empty once it has ended. */
export function commandLine(pid: number): string {
  return readProcFile(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
}

/** Sends a signal; a process that has ended meanwhile needs none. After SIGSTOP the process does nothing more. */
export function sendSignal({ pid, start }: ProcessId, name: NodeJS.Signals): void {
  if (readStat(pid)?.start !== start) return;
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
  if (name === "SIGSTOP") waitUntilStopped(pid);
}

/** As sendSignal(), for a process that this one started. */
export function signalChild(child: ChildProcess, name: NodeJS.Signals): void {
  const isSent = child.kill(name);
  if (isSent && name === "SIGSTOP") waitUntilStopped(child.pid as number);
}

/**
 * SIGSTOP to a process, which does nothing more when this returns: the signal stops each thread when it next runs, and
 * on a busy machine a server answers requests for some 20 ms after it.
 */
export function stopProcess(pid: number): void {
  process.kill(pid, "SIGSTOP");
  waitUntilStopped(pid);
}

function waitUntilStopped(pid: number): void {
  const end = performance.now() + STOP_TIMEOUT_MS;
  while (!isStopped(pid)) {
    if (performance.now() > end) throw new Error(`process ${pid} did not stop within ${STOP_TIMEOUT_MS} ms`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
  }
}

/** Each thread is stopped (T, t) or has ended (Z, X, no entry). */
function isStopped(pid: number): boolean {
  return listThreads(pid).every((thread) => {
    const stat = readProcFile(`/proc/${pid}/task/${thread}/stat`);
    return !/^[A-SU-WY]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  });
}

function listThreads(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

function readStat(pid: number): ProcessStat | null {
  const text = readProcFile(`/proc/${pid}/stat`);
  const [state = "", parent = "", ...rest] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return /^[A-WY]$/.test(state) ? { pid, state, parent: Number(parent), start: rest[17] ?? "" } : null;
}

/** Empty when the process has ended, or is not ours to look into. */
function readProcFile(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES" || code === "EPERM") return "";
    throw error;
  }
}
