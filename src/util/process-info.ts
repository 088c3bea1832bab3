/**
 * Reads from the system which processes exist, and where: the boot and the namespace of their ids. A process is identified
 * by its id and its start time, because ids are reused.
 */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** The state of a process. stopped: by a signal, as with Ctrl-Z; unknown: the system does not tell. */
export type ProcessState = "running" | "stopped" | "gone" | "unknown";
/** Looks up the process with this id and start time (field 22 of /proc/PID/stat). */
export type ProcessProbe = (pid: number, pidStart: string) => ProcessState;

/**
 * Field 22 of /proc/PID/stat, in clock ticks since the machine was started; the name in field 2 may contain any
 * character.
 */
const START_FIELD = 22;

/** The state of the process with that id and start time. */
export function probeProcess(pid: number, pidStart: string): ProcessState {
  let fields: readonly string[];
  try {
    fields = readStat(pid);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT" && code !== "ESRCH") return "unknown";
    return hasProc() ? "gone" : "unknown";
  }
  if (fields[START_FIELD - 3] !== pidStart) return "gone";
  const state = fields[0];
  if (state === "Z" || state === "X") return "gone";
  return state === "T" || state === "t" ? "stopped" : "running";
}

/** When a running process of this user was started; null: this system does not tell. */
export function readStartTime(pid: number | "self"): string | null {
  try {
    return readStat(pid)[START_FIELD - 3] ?? null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH") return null;
    throw error;
  }
}

/** The fields from field 3 on. */
function readStat(pid: number | "self"): readonly string[] {
  const text = readFileSync(`/proc/${pid}/stat`, "latin1");
  return text.slice(text.lastIndexOf(")") + 2).split(" ");
}

function hasProc(): boolean {
  try {
    readFileSync("/proc/self/stat", "latin1");
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}

/** Processes of this user that were started with this variable in their environment, as `NAME=value`. */
export function findProcessesByEnvironment(variable: string): { readonly pid: number; readonly start: string }[] {
  return listPids().flatMap((pid) => {
    const environment = readOrEmpty(`/proc/${pid}/environ`).split("\0");
    const start = environment.includes(variable) ? readStartTime(pid) : null;
    return start === null ? [] : [{ pid, start }];
  });
}

/** Empty where the system does not show processes. */
function listPids(): number[] {
  try {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** Empty for a process that has ended, or that this user may not inspect. */
function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES" || code === "EPERM") return "";
    throw error;
  }
}

/** Identifies the time since the machine was started; null: this system does not tell. */
export function readBootId(): string | null {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

/** Identifies the namespace of our process ids (each container has its own); null: this system does not tell. */
export function readPidNamespace(): string | null {
  try {
    return readlinkSync("/proc/self/ns/pid");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "EACCES") return null;
    throw error;
  }
}
