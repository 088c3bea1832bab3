/**
 * The directory of the per-user server, with its socket, lock file and state. It depends only on the user and the machine,
 * never on $HOME, $TMPDIR or $XDG_RUNTIME_DIR: these differ between cron, ssh, sudo and a desktop, and two directories would
 * mean two servers that grant the same locks.
 */

import type { Stats } from "node:fs";
import { lstatSync, statSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { StoreRefusedError } from "../errors.ts";
import { createPrivateDirectory, DirectoryError, trimTrailingSlashes } from "./private-directory.ts";

/** The longest path of a Unix socket, in bytes, that all systems support. */
const MAX_SOCKET_PATH_BYTES = 103;

/**
 * Returns the path of this user's directory on this machine: $HOLDFAST_DIR, else `.holdfast/<host name>` in the home
 * directory from the password database, else `holdfast-<uid>` in /tmp for a user without a home. Does not create or check it.
 * @throws TypeError if HOLDFAST_DIR is not an absolute path
 */
export function resolveUserDirectory(env: NodeJS.ProcessEnv = process.env): string {
  const configured = env.HOLDFAST_DIR;
  if (configured !== undefined && configured !== "") {
    if (!isAbsolute(configured))
      throw new TypeError(`HOLDFAST_DIR must be an absolute path, not ${JSON.stringify(configured)}`);
    return trimTrailingSlashes(configured);
  }
  const home = findHomeDirectory();
  return home === null ? `/tmp/holdfast-${currentUid()}` : join(home, ".holdfast", toFileName(hostname()));
}

/**
 * Creates the directory if it is missing, checks it, and returns the path of the server's socket in it.
 * @throws StoreRefusedError if it is a link, another user's, or open to others; TypeError if the path is too long
 */
export function prepareSocketPath(directory: string): string {
  const socket = userSocketPath(directory);
  createUserDirectory(directory);
  validateUserDirectory(directory);
  return socket;
}

/**
 * Returns the socket path of the per-user server.
 * @throws TypeError naming HOLDFAST_DIR if the path is too long for a socket
 */
export function userSocketPath(directory: string): string {
  const path = join(directory, "socket");
  const bytes = Buffer.byteLength(path);
  if (bytes > MAX_SOCKET_PATH_BYTES) {
    throw new TypeError(
      `the socket's path ${path} has ${bytes} bytes, at most ${MAX_SOCKET_PATH_BYTES} work: set HOLDFAST_DIR to a shorter directory`,
    );
  }
  return path;
}

/**
 * Rejects a directory in which another user could create a socket or use this user's.
 * @throws StoreRefusedError with the problem and the remedy
 */
export function validateUserDirectory(directory: string): void {
  const stats = lstatSync(directory, { throwIfNoEntry: false });
  const problem = stats === undefined ? "does not exist" : directoryProblem(stats);
  if (problem === null) return;
  throw new StoreRefusedError(
    `the directory ${directory} ${problem}: refusing to use it; it must be owned by you with mode 0700 (set HOLDFAST_DIR to use another directory)`,
  );
}

function directoryProblem(stats: Stats): string | null {
  if (stats.isSymbolicLink()) return "is a symbolic link";
  if (!stats.isDirectory()) return "is not a directory";
  if (stats.uid !== currentUid()) return `belongs to the user with id ${stats.uid}`;
  if ((stats.mode & 0o077) !== 0) return `is open to others (mode 0${(stats.mode & 0o777).toString(8)})`;
  return null;
}

function createUserDirectory(directory: string): void {
  try {
    createPrivateDirectory(directory);
  } catch (error) {
    if (!(error instanceof DirectoryError)) throw error;
    throw new StoreRefusedError(`the directory ${error.message}; set HOLDFAST_DIR to another`, { cause: error });
  }
}

/**
 * Returns null for users whose home directory is missing or owned by another user, such as system users of daemons. The
 * user's own home counts even if it cannot be used now (for example read-only for a confined service): another directory
 * would mean a second server that grants the same locks.
 */
function findHomeDirectory(): string | null {
  let home: string;
  try {
    home = userInfo().homedir;
  } catch (error) {
    // a container may run under a user id without an entry in the password database
    if ((error as NodeJS.ErrnoException).code !== "ERR_SYSTEM_ERROR") throw error;
    return null;
  }
  if (!isAbsolute(home) || dirname(home) === home) return null;
  try {
    const stats = statSync(home, { throwIfNoEntry: false });
    return stats?.isDirectory() && stats.uid === currentUid() ? home : null;
  } catch (error) {
    throw new StoreRefusedError(
      `your home directory ${home} cannot be accessed (${(error as Error).message}): set HOLDFAST_DIR to a directory that all your processes can access`,
      { cause: error },
    );
  }
}

/** Turns a host name, which may contain any characters, into a safe file name. */
function toFileName(host: string): string {
  const name = host.replace(/[^A-Za-z0-9._-]/g, "_").slice(0, 63);
  return /^\.*$/.test(name) ? "host" : name;
}

function currentUid(): number {
  // -1 on Windows, where therefore no directory passes the check
  return process.getuid?.() ?? -1;
}
