/**
 * One process at a time, elected by the kernel: an exclusive lock on a file that ends with its process, however it dies.
 * Nothing here reads process ids or ages of files, so nothing of a dead winner has to be cleaned up.
 *
 * On Linux the lock is flock(2)'s, taken by flock(1) on a descriptor of ours: the lock belongs to the open file, so it
 * stays when flock(1) has ended. On macOS open(2) takes it. Without flock(1) a socket in Linux's abstract namespace
 * serves, under a name that only who may read the file can know.
 */

import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync, statSync, writeSync } from "node:fs";
import type { Server } from "node:net";
import { createServer } from "node:net";
import { flock } from "./flock.ts";

/** What the winner holds until it lets go or dies. */
export interface FileLock {
  /** Why it does not keep others out any more: the file was removed or replaced, so that another may lock a new one. Null: it does. */
  lostReason(): string | null;
  /** Lets the next one win. The file stays. */
  close(): void;
}

const MAX_ATTEMPTS = 10;
/** open(2) of macOS: take an exclusive lock, and fail rather than wait. */
const DARWIN_EXLOCK = 0x20 | 0x4;

/**
 * Takes the lock on the file at `path` (made with mode 0600 if missing), or gives null because a living process has it.
 * `flockCommand` names flock(1).
 * @throws Error of the system if the file cannot be opened (ELOOP for a link) or locked
 */
export async function acquireFileLock(path: string, flockCommand = "flock"): Promise<FileLock | null> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const descriptor = openLockFile(path);
    if (descriptor === null) return null;
    const lock = await lockDescriptor(path, descriptor, flockCommand);
    // who removed the file since we opened it may have let another lock a new one
    if (lock !== null && isSameFile(path, descriptor)) {
      const lostReason = (): string | null => (isSameFile(path, descriptor) ? null : `${path} was removed or replaced`);
      return { lostReason, close: () => releaseLock(lock, descriptor) };
    }
    releaseLock(lock, descriptor);
    if (lock === null) return null;
  }
  throw new Error(`the lock file ${path} is being replaced again and again`);
}

/** Null: locked by another (where opening is locking). */
function openLockFile(path: string): number | null {
  const lockFlags = process.platform === "darwin" ? DARWIN_EXLOCK : 0;
  try {
    return openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | lockFlags, 0o600);
  } catch (error) {
    if (lockFlags !== 0 && (error as NodeJS.ErrnoException).code === "EAGAIN") return null;
    throw error;
  }
}

/** What to close besides the descriptor; null: locked by another. */
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

/** The name is 128 random bits kept in the file, so nobody else can take it before us. */
function lockByAbstractSocket(path: string, descriptor: number): Promise<Server | null> {
  if (process.platform !== "linux") throw new Error("one server at a time needs flock(1): install it (util-linux)");
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
  // appended in one write, so of two who find the file empty the first one's name counts for both
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
