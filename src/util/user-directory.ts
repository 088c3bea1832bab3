/**
 * The directory of a user's server on demand: where its socket, its election and its state are. It depends on the user
 * and the machine alone, never on $HOME, $TMPDIR or $XDG_RUNTIME_DIR: those differ between cron, ssh, sudo and a
 * desktop, and two directories would mean two servers that both grant.
 */

import type { Stats } from "node:fs";
import { lstatSync, statSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { FatalDriverError } from "../errors.ts";
import { createPrivateDirectory, DirectoryError, trimTrailingSlashes } from "./private-directory.ts";

/** The longest path of a Unix socket, in bytes, that every system takes. */
const MAX_SOCKET_PATH_BYTES = 103;

/**
 * Where this user's directory is on this machine: $HOLDFAST_DIR, else `.holdfast/<host name>` in the home directory of
 * the password database, else `holdfast-<uid>` in /tmp for a user without a home of their own. Makes and checks nothing.
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
 * Makes the directory if it is missing, checks it, and gives the path of the server's socket in it.
 * @throws FatalDriverError if it is a link, another user's, or open to others; TypeError if the path is too long
 */
export function prepareSocketPath(directory: string): string {
  const socket = userSocketPath(directory);
  createUserDirectory(directory);
  validateUserDirectory(directory);
  return socket;
}

/**
 * The socket of the server on demand.
 * @throws TypeError naming HOLDFAST_DIR if a socket cannot have so long a path
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
 * Refuses a directory in which somebody else could put a socket, or read ours.
 * @throws FatalDriverError saying what is wrong and what to do
 */
export function validateUserDirectory(directory: string): void {
  const stats = lstatSync(directory, { throwIfNoEntry: false });
  const problem = stats === undefined ? "does not exist" : directoryProblem(stats);
  if (problem === null) return;
  throw new FatalDriverError(
    `the directory ${directory} ${problem}: refusing to use it; it must be a directory of yours with mode 0700 (HOLDFAST_DIR names another)`,
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
    throw new FatalDriverError(`the directory ${error.message}; set HOLDFAST_DIR to another`, { cause: error });
  }
}

/**
 * Null for users whose home is missing or another's, such as `nobody` and the users of daemons. A home of ours that cannot
 * be used just now (read-only for a confined service, say) still counts: elsewhere a second server would grant as well.
 */
function findHomeDirectory(): string | null {
  let home: string;
  try {
    home = userInfo().homedir;
  } catch (error) {
    // a container may run under an id that the database does not know
    if ((error as NodeJS.ErrnoException).code !== "ERR_SYSTEM_ERROR") throw error;
    return null;
  }
  if (!isAbsolute(home) || dirname(home) === home) return null;
  try {
    const stats = statSync(home, { throwIfNoEntry: false });
    return stats?.isDirectory() && stats.uid === currentUid() ? home : null;
  } catch (error) {
    throw new FatalDriverError(
      `your home directory ${home} cannot be looked at (${(error as Error).message}): set HOLDFAST_DIR to a directory that all your processes reach`,
      { cause: error },
    );
  }
}

/** A host name may be set to anything; it becomes one harmless name in a directory. */
function toFileName(host: string): string {
  const name = host.replace(/[^A-Za-z0-9._-]/g, "_").slice(0, 63);
  return /^\.*$/.test(name) ? "host" : name;
}

function currentUid(): number {
  // -1 on Windows, where no directory passes the check
  return process.getuid?.() ?? -1;
}
