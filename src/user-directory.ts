/**
 * The directory of a user's server on demand: where its socket, its election and its state are. It depends on the user
 * and the machine alone, never on $HOME, $TMPDIR or $XDG_RUNTIME_DIR: those differ between cron, ssh, sudo and a
 * desktop, and two directories would mean two servers that both grant.
 */

import type { Stats } from "node:fs";
import { lstatSync, statSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { FatalDriverError } from "./errors.ts";
import { FolderError, makePrivateFolder, trimmedPath } from "./private-folder.ts";

/** The longest path of a Unix socket, in bytes, that every system takes. */
const MAX_SOCKET_PATH_BYTES = 103;

/**
 * Where this user's directory is on this machine: $HOLDFAST_DIR, else `.holdfast/<host name>` in the home directory of
 * the password database, else `holdfast-<uid>` in /tmp for a user without a home of their own. Makes and checks nothing.
 * @throws TypeError if HOLDFAST_DIR is not an absolute path
 */
export function userDirectory(env: NodeJS.ProcessEnv = process.env): string {
  const told = env.HOLDFAST_DIR;
  if (told !== undefined && told !== "") {
    if (!isAbsolute(told)) throw new TypeError(`HOLDFAST_DIR must be an absolute path, not ${JSON.stringify(told)}`);
    return trimmedPath(told);
  }
  const home = homeInDatabase();
  return home === null ? `/tmp/holdfast-${uid()}` : join(home, ".holdfast", fileName(hostname()));
}

/**
 * Makes the directory if it is missing, checks it, and gives the path of the server's socket in it.
 * @throws FatalDriverError if it is a link, another user's, or open to others; TypeError if the path is too long
 */
export function preparedSocketPath(directory: string): string {
  const socket = socketPath(directory);
  makeDirectory(directory);
  checkDirectory(directory);
  return socket;
}

/**
 * The socket of the server on demand.
 * @throws TypeError naming HOLDFAST_DIR if a socket cannot have so long a path
 */
export function socketPath(directory: string): string {
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
export function checkDirectory(directory: string): void {
  const found = lstatSync(directory, { throwIfNoEntry: false });
  const wrong = found === undefined ? "does not exist" : whatIsWrong(found);
  if (wrong === null) return;
  throw new FatalDriverError(
    `the directory ${directory} ${wrong}: refusing to use it; it must be a directory of yours with mode 0700 (HOLDFAST_DIR names another)`,
  );
}

function whatIsWrong(found: Stats): string | null {
  if (found.isSymbolicLink()) return "is a symbolic link";
  if (!found.isDirectory()) return "is not a directory";
  if (found.uid !== uid()) return `belongs to the user with id ${found.uid}`;
  if ((found.mode & 0o077) !== 0) return `is open to others (mode 0${(found.mode & 0o777).toString(8)})`;
  return null;
}

function makeDirectory(directory: string): void {
  try {
    makePrivateFolder(directory);
  } catch (error) {
    if (!(error instanceof FolderError)) throw error;
    throw new FatalDriverError(`the directory ${error.message}; set HOLDFAST_DIR to another`, { cause: error });
  }
}

/**
 * Null for users whose home is missing or another's, such as `nobody` and the users of daemons. A home of ours that cannot
 * be used just now (read-only for a confined service, say) still counts: elsewhere a second server would grant as well.
 */
function homeInDatabase(): string | null {
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
    const found = statSync(home, { throwIfNoEntry: false });
    return found?.isDirectory() && found.uid === uid() ? home : null;
  } catch (error) {
    throw new FatalDriverError(
      `your home directory ${home} cannot be looked at (${(error as Error).message}): set HOLDFAST_DIR to a directory that all your processes reach`,
      { cause: error },
    );
  }
}

/** A host name may be set to anything; it becomes one harmless name in a directory. */
function fileName(host: string): string {
  const name = host.replace(/[^A-Za-z0-9._-]/g, "_").slice(0, 63);
  return /^\.*$/.test(name) ? "host" : name;
}

function uid(): number {
  // -1 on Windows, where no directory passes the check
  return process.getuid?.() ?? -1;
}
