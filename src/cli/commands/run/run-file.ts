/**
 * A run on a Unix socket writes down what it holds, and which processes work under it, before its command starts. A server
 * that is started anew restores that for as long as one of them lives: wrapper and server may both be gone while the
 * command still works. The format and what it means: server/runs/run-file-format.ts.
 *
 * Invariant: from before the command is started until it and everything below it has ended, the file stands there, and
 * the command has inherited the lock on it. Its process id is added in the same turn in which it is started.
 *
 * With `--hold-at-least` file and name are on disk before the command is started: the first server after a power failure
 * keeps the lock for what is left. Without it the file says nothing after a power failure, which no process of a run
 * survives, so its writes are not synced.
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
import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import type { RunRole } from "../../../server/runs/run-file-format.ts";
import { encodeHeader, encodeProcess } from "../../../server/runs/run-file-format.ts";
import { runFilePath, temporaryRunFilePath } from "../../../server/runs/run-files.ts";
import { readBootId, readPidNamespace, readStartTime } from "../../../server/session/process-probe.ts";
import { flock } from "../../../util/flock.ts";
import { CommandError } from "../../errors.ts";

/** Room for the lines of processes: written at once, so that a disk that fills up later has no part in it. */
const RESERVED_BYTES = 1_024;

/** What a run has written down. */
export interface RunFile {
  /** Where it stands. */
  readonly path: string;
  /** Carries the lock. Guard and command inherit it. */
  readonly descriptor: number;
  /** Its server keeps what it holds for longer: the file is not removed before that is seen to. */
  readonly isKeptByServer: boolean;
  /** Adds a living process of ours. @throws CommandError output */
  addProcess(role: RunRole, pid: number): void;
  /** The command has ended and nothing is to stay held that is not seen to, or what is written there is not held any more. */
  remove(): void;
}

/**
 * Writes down a run that holds what `reference` says, for so long at least. Null where the server restores no runs.
 * @throws CommandError output (74) if it cannot be written: the command is not to start then
 */
export async function writeRunFile(
  keepSession: KeepSessionSocket | null,
  reference: string | null,
  label: string,
  minHoldMs: number = 0,
): Promise<RunFile | null> {
  if (keepSession === null || keepSession.runDirectory === null || reference === null) return null;
  const { runDirectory: directory, sessionId: session } = keepSession;
  const path = runFilePath(directory, session);
  const temporaryPath = temporaryRunFilePath(directory, session);
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  let descriptor: number | null = null;
  try {
    descriptor = openSync(temporaryPath, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    chownToServer(temporaryPath, directory);
    const holdUntil = minHoldMs === 0 ? 0 : Date.now() + minHoldMs;
    const header = { boot: readBootId(), space: readPidNamespace(), session, label, reference, holdUntil };
    const file = new WrittenRunFile(path, descriptor, holdUntil > 0);
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

  /** The descriptor stays open: what is left of the run goes with us. */
  remove(): void {
    if (this.#exists) removeIfExists(this.path);
    this.#exists = false;
  }
}

/** False: there is no flock(1) here, or the folder's file system has no locks; then the process ids must do. */
async function isLocked(descriptor: number): Promise<boolean> {
  try {
    return (await flock(descriptor, "exclusive")) === "locked";
  } catch {
    return false;
  }
}

/** What root writes must be its server's to read. */
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
  throw Object.assign(new Error("a part was not written"), { code: "ENOSPC" });
}

const WRITE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk is full",
  // a container, or a service that sees only the socket
  ENOENT: "ENOENT; a run must see this folder of its server at the same path, not only the socket",
  EROFS: "EROFS; a run must be able to write to this folder of its server",
};

function toWriteError(path: string, error: unknown): CommandError {
  const { code, message } = error as NodeJS.ErrnoException;
  const problem = WRITE_PROBLEMS[code ?? ""] ?? code ?? message;
  return new CommandError("output", `what this run holds cannot be written to ${path} (${problem})`, { cause: error });
}

function removeIfExists(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}
