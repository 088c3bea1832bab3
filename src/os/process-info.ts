/**
 * Reads from the system which processes exist, and where: the boot and the namespace of their ids. A process is identified
 * by its id and its start time, because ids are reused.
 */

import type { Stats } from "node:fs";
import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync, statSync } from "node:fs";

/** The state of a process. stopped: by a signal, as with Ctrl-Z; unknown: the system does not tell. */
export type ProcessState = "running" | "stopped" | "gone" | "unknown";
/** Looks up the process with this id and start time (field 22 of /proc/PID/stat). */
export type ProcessProbe = (pid: number, pidStart: string) => ProcessState;

/**
 * Field 22 of /proc/PID/stat, in clock ticks since the machine was started; the name in field 2 may contain any
 * character.
 */
const START_FIELD = 22;
/** Linux gives the namespace that the machine starts with this fixed number. It sees the processes of all others. */
const INITIAL_NAMESPACE = "pid:[4026531836]";

const USUAL_ENVIRONMENT_BYTES = 65_536;

/** A process, by the id that it has in our namespace. */
export interface ProcessId {
  readonly pid: number;
  readonly start: string;
}

/** The state of the process with that id and start time. */
export function probeProcess(pid: number, pidStart: string): ProcessState {
  let fields: readonly string[];
  try {
    fields = readStat(pid);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // a /proc with `hidepid` shows no processes of other users, such as one below sudo
    return (code === "ENOENT" || code === "ESRCH") && isUnused(pid) ? "gone" : "unknown";
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

/** Has this child of this process ended, although the event that says so may not have come yet? False where the system does not tell. */
export function hasChildEnded(pid: number): boolean {
  try {
    return readStat(pid)[0] === "Z";
  } catch {
    return false;
  }
}

/** The parent of a process, and whether it leads a session of its own; null: it has ended. */
export function readParentage(pid: number): { readonly parent: number; readonly isSessionLeader: boolean } | null {
  try {
    const [, parent, , session] = readStat(pid).map(Number);
    return { parent: parent as number, isSessionLeader: session === pid };
  } catch {
    return null;
  }
}

/** The fields from field 3 on. */
function readStat(pid: number | "self"): readonly string[] {
  const text = readFileSync(`/proc/${pid}/stat`, "latin1");
  return text.slice(text.lastIndexOf(")") + 2).split(" ");
}

function isUnused(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}

/**
 * Finds a process by the id that it has in another namespace. A namespace sees the processes of those below it. "gone": it
 * has ended; "unknown": it may run where we do not see it.
 */
export function findInNamespace(namespace: string, pid: number, start: string): ProcessId | "gone" | "unknown" {
  const visible = listPids();
  const found = visible.find((candidate) => {
    const ids = /^NSpid:\s*(.*)$/m.exec(readOrEmpty(`/proc/${candidate}/status`))?.[1]?.split("\t") ?? [];
    if (ids.length < 2 || ids.at(-1) !== String(pid) || readStartTime(candidate) !== start) return false;
    // of a process of another user the namespace is not shown; id and start time agree
    return [namespace, null].includes(readPidNamespace(candidate));
  });
  if (found !== undefined) return { pid: found, start };
  const seesAll = readPidNamespace() === INITIAL_NAMESPACE && readOrEmpty("/proc/1/stat") !== "";
  return seesAll || visible.some((candidate) => readPidNamespace(candidate) === namespace) ? "gone" : "unknown";
}

/** A process that has this file open; null: none that this user may inspect. */
export function findProcessWithOpenFile({ dev, ino }: Stats): ProcessId | null {
  for (const pid of listPids()) {
    const isOpen = listOrEmpty(`/proc/${pid}/fd`).some((descriptor) => {
      const opened = statOrNull(`/proc/${pid}/fd/${descriptor}`);
      return opened?.ino === ino && opened.dev === dev;
    });
    const start = isOpen && pid !== process.pid ? readStartTime(pid) : null;
    if (start !== null) return { pid, start };
  }
  return null;
}

/** The name of a process, as `ps` shows it; null: it has ended. */
export function readProcessName(pid: number): string | null {
  return readOrEmpty(`/proc/${pid}/comm`).trimEnd() || null;
}

/** The processes of this user that were started with this variable in their environment, and its value there. */
export function findProcessesByVariable(name: string): (ProcessId & { readonly value: string })[] {
  const prefix = `${name}=`;
  const buffer = Buffer.allocUnsafe(USUAL_ENVIRONMENT_BYTES);
  return listPids().flatMap((pid) => {
    const environment = unlessHidden(() => readEnvironment(pid, buffer), "");
    if (!environment.includes(prefix)) return [];
    const variable = environment.split("\0").find((text) => text.startsWith(prefix));
    const start = variable === undefined ? null : readStartTime(pid);
    return variable === undefined || start === null ? [] : [{ pid, start, value: variable.slice(prefix.length) }];
  });
}

/** Each run reads those of all processes: into one buffer, which takes half of the time of readFileSync(). */
function readEnvironment(pid: number, buffer: Buffer): string {
  const path = `/proc/${pid}/environ`;
  const descriptor = openSync(path, "r");
  try {
    const length = readSync(descriptor, buffer, 0, buffer.length, null);
    return length < buffer.length ? buffer.toString("latin1", 0, length) : readFileSync(path, "latin1");
  } finally {
    closeSync(descriptor);
  }
}

/** Empty where the system does not show processes. */
function listPids(): number[] {
  return listOrEmpty("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** Empty for a process that has ended, or that this user may not inspect. */
function readOrEmpty(path: string): string {
  return unlessHidden(() => readFileSync(path, "latin1"), "");
}

function listOrEmpty(path: string): readonly string[] {
  return unlessHidden(() => readdirSync(path), []);
}

function statOrNull(path: string): Stats | null {
  return unlessHidden(() => statSync(path), null);
}

/** `fallback` for what does not exist (any more), or what this user may not inspect. */
function unlessHidden<T>(read: () => T, fallback: T): T {
  try {
    return read();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES" || code === "EPERM") return fallback;
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

/** Identifies the namespace of process ids of a process (each container has its own); null: this system does not tell. */
export function readPidNamespace(pid: number | "self" = "self"): string | null {
  return unlessHidden(() => readlinkSync(`/proc/${pid}/ns/pid`), null);
}
