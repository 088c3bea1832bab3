/**
 * An exclusive file lock by the kernel: at most one process has it, and it ends with its process, however that dies. No
 * process ids or file ages are compared, so there is nothing to clean up after a dead process.
 *
 * On Linux, flock(1) takes a flock(2) lock on a descriptor of this process: the lock belongs to the open file, so it remains
 * after flock(1) has ended. On macOS, open(2) takes the lock. On a Linux without flock(1), a socket in the abstract namespace
 * serves as the lock; its name is known only to users who may read the file.
 */

import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync, statSync, writeSync } from "node:fs";
import type { Server } from "node:net";
import { createServer } from "node:net";
import { flock } from "./flock.ts";

/** A lock that this process has until close(). */
export interface FileLock {
  /** Why the lock no longer excludes others: the file was removed or replaced, so another process may lock a new one. Else null. */
  lostReason(): string | null;
  /** Releases the lock. The file stays. */
  close(): void;
}

const MAX_ATTEMPTS = 10;
/** Flags for open(2) on macOS: take an exclusive lock, and fail instead of waiting. */
const DARWIN_EXLOCK = 0x20 | 0x4;

/**
 * Locks the file at `path`, which is created with mode 0600 if it is missing. Returns null if a living process has the lock.
 * `flockCommand` is the command name of flock(1).
 * @throws the system's Error if the file cannot be opened (ELOOP for a link) or locked
 */
export async function acquireFileLock(path: string, flockCommand = "flock"): Promise<FileLock | null> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const descriptor = openLockFile(path);
    if (descriptor === null) return null;
    const lock = await lockDescriptor(path, descriptor, flockCommand);
    // if the file was removed since it was opened, another process may have locked a new one
    if (lock !== null && isSameFile(path, descriptor)) {
      const lostReason = (): string | null => (isSameFile(path, descriptor) ? null : `${path} was removed or replaced`);
      return { lostReason, close: () => releaseLock(lock, descriptor) };
    }
    releaseLock(lock, descriptor);
    if (lock === null) return null;
  }
  throw new Error(`cannot lock ${path}: the file was replaced during each of ${MAX_ATTEMPTS} attempts`);
}

/** Opens the lock file. Null: another process has locked it (on macOS, where open(2) takes the lock). */
function openLockFile(path: string): number | null {
  const lockFlags = process.platform === "darwin" ? DARWIN_EXLOCK : 0;
  try {
    return openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | lockFlags, 0o600);
  } catch (error) {
    if (lockFlags !== 0 && (error as NodeJS.ErrnoException).code === "EAGAIN") return null;
    throw error;
  }
}

/** Locks the descriptor. Returns the server to close with it, if there is one; null: another process has the lock. */
async function lockDescriptor(
  path: string,
  descriptor: number,
  flockCommand: string,
): Promise<Server | "descriptor" | null> {
  if (process.platform === "darwin") return "descriptor";
  const result = await flock(descriptor, "exclusive", flockCommand);
  if (result === "missing") return lockByAbstractSocket(path, descriptor);
  return result === "locked" ? "descriptor" : null;
}

function releaseLock(lock: Server | "descriptor" | null, descriptor: number): void {
  if (lock !== null && lock !== "descriptor") lock.close();
  closeSync(descriptor);
}

function isSameFile(path: string, descriptor: number): boolean {
  const current = statSync(path, { throwIfNoEntry: false });
  const opened = fstatSync(descriptor);
  return current !== undefined && current.ino === opened.ino && current.dev === opened.dev;
}

/** The socket's name is 128 random bits from the file, so no process that cannot read the file can take it. */
function lockByAbstractSocket(path: string, descriptor: number): Promise<Server | null> {
  if (process.platform !== "linux")
    throw new Error("the server's lock file needs flock(1): install it (package util-linux)");
  const name = readSocketName(path, descriptor);
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(null);
      else reject(error);
    });
    server.listen(`\0holdfast-${name}`, () => {
      server.unref();
      resolve(server);
    });
  });
}

function readSocketName(path: string, descriptor: number): string {
  // one atomic append: if two processes find the file empty, both use the name that was written first
  const append = openSync(path, constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW);
  try {
    if (fstatSync(descriptor).size === 0) writeSync(append, `${randomBytes(16).toString("hex")}\n`);
  } finally {
    closeSync(append);
  }
  const name = readFileSync(path, "latin1").slice(0, 32);
  if (!/^[0-9a-f]{32}$/.test(name)) throw new Error(`the lock file ${path} is damaged: remove it`);
  return name;
}
