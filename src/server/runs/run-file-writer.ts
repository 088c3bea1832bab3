/**
 * Writes the run file, for the wrapper: cli/commands/run/ creates it before the watchdog and the command start, and
 * adds each of them.
 *
 * Invariant: from before the start of the command until the command and all processes below it have ended, the file
 * exists, and the command has inherited the lock on it. The process id of the command is added synchronously after its
 * start.
 *
 * With `--hold-at-least` the content and the name of the file are synced to disk before the command starts: the first
 * start of the server after a power failure keeps the lock for the rest of the time. Without the option the file has no
 * meaning after a power failure, because no process of the run survives it, so it is not synced.
 */

import {
  chownSync,
  closeSync,
  constants,
  fsyncSync,
  openSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { flock } from "../../os/flock.ts";
import { readBootId, readPidNamespace, readStartTime } from "../../os/process-info.ts";
import { systemClock } from "../../util/clock.ts";
import { StateError } from "../storage/private-files.ts";
import type { RunRole } from "./run-file-format.ts";
import { encodeHeader, encodeProcess, runFilePath, temporaryRunFilePath } from "./run-file-format.ts";

/** Space for the lines of processes. It is written in advance, so that these lines cannot fail on a full disk later. */
const RESERVED_BYTES = 1_024;

/** The file of a run. */
export interface RunFile {
  readonly path: string;
  /** Has the lock on the file. Watchdog and command inherit it. */
  readonly descriptor: number;
  /** With --hold-at-least the lock stays held after the run: the file remains until the store has confirmed that. */
  readonly isKeptByServer: boolean;
  /** Adds a living process of the run. @throws StateError if the line cannot be written */
  addProcess(role: RunRole, pid: number): void;
  /** Call this when the recorded lock is lost, or when the command has ended and the file is not needed any more. */
  remove(): void;
}

/** What a run holds. */
export interface RunLocks {
  /** The session of the wrapper. */
  readonly session: string;
  readonly label: string;
  /** The claims of the run, as a lock reference. */
  readonly reference: string;
  /**
   * They stay held for at least this long, in milliseconds, even after the end of the run (`--hold-at-least`); 0: not
   * set.
   */
  readonly minHoldMs: number;
}

/**
 * Writes the file of a run into the server's directory.
 * @throws (rejects) StateError if the file cannot be written: then the command must not start
 */
export async function writeRunFile(directory: string, run: RunLocks): Promise<RunFile> {
  const { session, label, reference, minHoldMs } = run;
  const path = runFilePath(directory, session);
  const temporaryPath = temporaryRunFilePath(directory, session);
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  let descriptor: number | null = null;
  try {
    descriptor = openSync(temporaryPath, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    chownToServer(temporaryPath, directory);
    const hold = {
      holdUntil: minHoldMs === 0 ? 0 : systemClock.wall() + minHoldMs,
      holdUntilUptime: minHoldMs === 0 ? 0 : systemClock.uptime() + minHoldMs,
    };
    const header = { boot: readBootId(), space: readPidNamespace(), session, label, reference, ...hold };
    const file = new WrittenRunFile(path, descriptor, minHoldMs > 0);
    file.writeHeader(encodeHeader({ ...header, locked: await isLocked(descriptor) }));
    file.addProcess("wrapper", process.pid);
    if (file.isKeptByServer) fsyncSync(descriptor);
    renameSync(temporaryPath, path);
    if (file.isKeptByServer) syncDirectory(directory);
    return file;
  } catch (error) {
    if (descriptor !== null) {
      closeSync(descriptor);
      removeIfExists(temporaryPath);
      removeIfExists(path);
    }
    throw toWriteError(directory, error);
  }
}

class WrittenRunFile implements RunFile {
  readonly path: string;
  readonly descriptor: number;
  readonly isKeptByServer: boolean;
  #end = 0;
  #exists = true;

  constructor(path: string, descriptor: number, isKeptByServer: boolean) {
    this.path = path;
    this.descriptor = descriptor;
    this.isKeptByServer = isKeptByServer;
  }

  writeHeader(header: string): void {
    writeFully(this.descriptor, header + "\n".repeat(RESERVED_BYTES), 0);
    this.#end = Buffer.byteLength(header);
  }

  addProcess(role: RunRole, pid: number): void {
    const line = encodeProcess({ role, pid, start: readStartTime(pid) });
    try {
      writeFully(this.descriptor, line, this.#end);
    } catch (error) {
      throw toWriteError(this.path, error);
    }
    this.#end += Buffer.byteLength(line);
  }

  /** The descriptor stays open until this process ends: the lock lasts as long as any process of the run. */
  remove(): void {
    if (this.#exists) removeIfExists(this.path);
    this.#exists = false;
  }
}

/** Locks the file. False without flock(1), or on a file system without locks: then only the process ids count. */
async function isLocked(descriptor: number): Promise<boolean> {
  try {
    return (await flock(descriptor, "exclusive")) === "locked";
  } catch {
    return false;
  }
}

/** Gives a file that root has created to the owner of the directory: otherwise the server could not read it. */
function chownToServer(path: string, directory: string): void {
  const { uid, gid } = statSync(directory);
  if (process.getuid?.() === 0 && uid !== 0) chownSync(path, uid, gid);
}

function syncDirectory(path: string): void {
  const descriptor = openSync(path, constants.O_RDONLY);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function writeFully(descriptor: number, text: string, position: number): void {
  const bytes = Buffer.from(text);
  if (writeSync(descriptor, bytes, 0, bytes.length, position) === bytes.length) return;
  throw Object.assign(new Error("only a part was written"), { code: "ENOSPC" });
}

const WRITE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk is full",
  // in a container or a service that has only the socket
  ENOENT: "ENOENT; `holdfast run` needs this directory of its server at the same path, not only the socket",
  EROFS: "EROFS; `holdfast run` must be able to write to this directory of its server",
};

function toWriteError(path: string, error: unknown): StateError {
  const { code, message } = error as NodeJS.ErrnoException;
  const problem = WRITE_PROBLEMS[code ?? ""] ?? code ?? message;
  return new StateError(`cannot record the lock of this run in ${path} (${problem})`, error);
}

function removeIfExists(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}
