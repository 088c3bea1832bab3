/**
 * A run on a Unix socket writes down what it holds, and which processes work under it, before its command starts. A server
 * that is started anew restores that for as long as one of them lives: wrapper and server may both be gone while the
 * command still works. The format and what it means: server/run-record.ts.
 *
 * Invariant: from before the command is started until it and everything below it has ended, the file stands there, and
 * the command has inherited the lock on it. Its process id is added in the same turn in which it is started.
 */

import { chownSync, closeSync, constants, openSync, renameSync, statSync, unlinkSync, writeSync } from "node:fs";
import type { Tether } from "../drivers/server/tether.ts";
import { flock } from "../server/flock.ts";
import { bootId, processSpace, startOf } from "../server/processes.ts";
import { newRunPath, runPath } from "../server/run-files.ts";
import type { RunRole } from "../server/run-record.ts";
import { headLine, processLine } from "../server/run-record.ts";
import { CommandError } from "./failure.ts";

/** Room for the lines of processes: written at once, so that a disk that fills up later has no part in it. */
const ROOM_BYTES = 1_024;

/** What a run has written down. */
export interface RunFile {
  /** Where it stands. */
  readonly path: string;
  /** Carries the lock. Guard and command inherit it. */
  readonly descriptor: number;
  /** Its server keeps what it holds for longer: the file is not removed before that is seen to. */
  readonly outlived: boolean;
  /** Adds a living process of ours. @throws CommandError output */
  add(role: RunRole, pid: number): void;
  /** The command has ended and nothing is to stay held that is not seen to, or what is written there is not held any more. */
  remove(): void;
}

/**
 * Writes down a run that holds what `reference` says, for so long at least. Null where the server restores no runs.
 * @throws CommandError output (74) if it cannot be written: the command is not to start then
 */
export async function writeRunFile(
  tether: Tether | null,
  reference: string | null,
  label: string,
  atLeastMs: number = 0,
): Promise<RunFile | null> {
  if (tether === null || tether.runsIn === null || reference === null) return null;
  const { runsIn: folder, session } = tether;
  const path = runPath(folder, session);
  const making = newRunPath(folder, session);
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  let descriptor: number | null = null;
  try {
    descriptor = openSync(making, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    giveTo(making, folder);
    const holdUntil = atLeastMs === 0 ? 0 : Date.now() + atLeastMs;
    const head = { boot: bootId(), space: processSpace(), session, label, reference, holdUntil };
    const file = new WrittenFile(path, descriptor, holdUntil > 0);
    file.begin(headLine({ ...head, locked: await isLocked(descriptor) }));
    file.add("wrapper", process.pid);
    renameSync(making, path);
    return file;
  } catch (error) {
    if (descriptor !== null) {
      closeSync(descriptor);
      removed(making);
    }
    throw unwritten(folder, error);
  }
}

class WrittenFile implements RunFile {
  readonly path: string;
  readonly descriptor: number;
  readonly outlived: boolean;
  #end = 0;
  #isThere = true;

  constructor(path: string, descriptor: number, outlived: boolean) {
    this.path = path;
    this.descriptor = descriptor;
    this.outlived = outlived;
  }

  begin(head: string): void {
    writeWhole(this.descriptor, head + "\n".repeat(ROOM_BYTES), 0);
    this.#end = Buffer.byteLength(head);
  }

  add(role: RunRole, pid: number): void {
    const line = processLine({ role, pid, start: startOf(pid) });
    try {
      writeWhole(this.descriptor, line, this.#end);
    } catch (error) {
      throw unwritten(this.path, error);
    }
    this.#end += Buffer.byteLength(line);
  }

  /** The descriptor stays open: what is left of the run goes with us. */
  remove(): void {
    if (this.#isThere) removed(this.path);
    this.#isThere = false;
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
function giveTo(path: string, folder: string): void {
  const { uid, gid } = statSync(folder);
  if (process.getuid?.() === 0 && uid !== 0) chownSync(path, uid, gid);
}

function writeWhole(descriptor: number, text: string, at: number): void {
  const bytes = Buffer.from(text);
  if (writeSync(descriptor, bytes, 0, bytes.length, at) === bytes.length) return;
  throw Object.assign(new Error("a part was not written"), { code: "ENOSPC" });
}

const WHY: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk is full",
  // a container, or a service that sees only the socket
  ENOENT: "ENOENT; a run must see this folder of its server at the same path, not only the socket",
  EROFS: "EROFS; a run must be able to write to this folder of its server",
};

function unwritten(path: string, error: unknown): CommandError {
  const { code, message } = error as NodeJS.ErrnoException;
  const why = WHY[code ?? ""] ?? code ?? message;
  return new CommandError("output", `what this run holds cannot be written to ${path} (${why})`, { cause: error });
}

function removed(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}
