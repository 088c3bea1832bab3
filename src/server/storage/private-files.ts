/**
 * Files that only this user may have written: opened without following links, and refused if another user could modify
 * them.
 */

import type { BigIntStats } from "node:fs";
import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { lstat, open, readdir, rename, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { createPrivateDirectory, DirectoryError } from "../../os/private-directory.ts";
import { systemErrorCode } from "../../util/system-error.ts";

/** A file or directory cannot be used as it is; the message says what to do. */
export class StateError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StateError";
  }
}

/** Entries that file systems and version control create in an otherwise empty directory. */
const IGNORED_NAMES: readonly string[] = ["lost+found", ".keep", ".gitkeep"];

/**
 * Creates the directory with mode 700, or checks an existing one. An empty directory of this user that no other user
 * can have written to is restricted to mode 700, which is logged.
 * @throws StateError if it cannot be created, is a symbolic link, is not a directory, belongs to another user, or is
 * open to other users
 */
export async function ensurePrivateDirectory(path: string, log: (message: string) => void): Promise<void> {
  const created = createDirectories(path);
  const openMode = await checkPrivateDirectory(path);
  if (openMode !== null) {
    await restrictDirectory(path);
    log(`${path} was empty and open to other users (mode ${openMode}): its mode is now 700`);
  }
  for (const directory of created) await syncDirectory(dirname(directory));
}

/**
 * Checks an existing directory. Null: only this user has access; else its mode, if it is empty and may be restricted.
 * @throws StateError if it cannot be used
 */
export async function checkPrivateDirectory(path: string): Promise<string | null> {
  const stats = await lstat(path, { bigint: true });
  if (stats.isSymbolicLink()) throw new StateError(`${path} is a symbolic link: name the directory itself`);
  if (!stats.isDirectory()) throw new StateError(`${path} is not a directory: name a directory for the server's state`);
  if (await canRestrict(path, stats)) return formatMode(stats);
  checkOwnership(path, stats, "700");
  return null;
}

/** True if the directory is empty and ours, and other users can read but not write it. */
async function canRestrict(path: string, { uid, mode }: BigIntStats): Promise<boolean> {
  if (uid !== BigInt(process.getuid?.() ?? -1) || (mode & 0o077n) === 0n || (mode & 0o1022n) !== 0n) return false;
  return (await readdir(path)).every((name) => IGNORED_NAMES.includes(name));
}

async function restrictDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await directory.chmod(0o700);
  } finally {
    await directory.close();
  }
}

/** Creates the directory and its missing parents, and returns them. @throws StateError if that fails */
function createDirectories(path: string): readonly string[] {
  try {
    return createPrivateDirectory(path);
  } catch (error) {
    if (error instanceof DirectoryError) throw new StateError(`${error.message}; name another directory`, error);
    throw error;
  }
}

/** Opens a file of this user; null if it does not exist. @throws StateError if another user could have written it */
export async function openPrivate(path: string, flags: number): Promise<FileHandle | null> {
  let file: FileHandle;
  try {
    file = await open(path, flags | constants.O_NOFOLLOW, 0o600);
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === "ENOENT") return null;
    if (code === "ELOOP") throw new StateError(`${path} is a symbolic link: put the file itself there`, error);
    throw accessError("be opened", path, error);
  }
  try {
    const stats = await file.stat({ bigint: true });
    if (!stats.isFile()) throw new StateError(`${path} is not a file: move it away`);
    if (stats.nlink > 1n) throw new StateError(`${path} has a second name (a hard link): remove that one`);
    checkOwnership(path, stats, "600");
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The text of a private file, or null. */
export async function readPrivate(path: string): Promise<string | null> {
  const file = await openPrivate(path, constants.O_RDONLY);
  if (file === null) return null;
  try {
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/**
 * Replaces a file so that either the old or the new contents survive any failure; settles when the new ones survive a
 * loss of power.
 */
export async function replaceAtomically(path: string, text: string): Promise<void> {
  try {
    await writeAndRename(`${path}.new`, path, text);
  } catch (error) {
    // on a full disk it takes the room that others need
    await unlink(`${path}.new`).catch(() => undefined);
    throw toWriteError(path, error);
  }
}

/** The error of a file that could not be written: it names the file, and has the code of the system's error. */
export function toWriteError(path: string, error: unknown): StateError {
  return Object.assign(accessError("be written", path, error), { code: systemErrorCode(error) });
}

async function writeAndRename(temporary: string, path: string, text: string): Promise<void> {
  await unlink(temporary).catch((error: unknown) => {
    if (systemErrorCode(error) !== "ENOENT") throw error;
  });
  const file = await open(
    temporary,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  await syncDirectory(dirname(path));
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function checkOwnership(path: string, stats: BigIntStats, mode: string): void {
  const user = process.getuid?.();
  if (user === undefined) return;
  if (stats.uid !== BigInt(user))
    throw new StateError(`${path} belongs to another user: remove it or run as its owner`);
  if ((stats.mode & 0o077n) === 0n) return;
  throw new StateError(
    `${path} is open to other users (mode ${formatMode(stats)}): chmod ${mode} it if you trust its contents`,
  );
}

function formatMode({ mode }: BigIntStats): string {
  return (mode & 0o777n).toString(8);
}

function accessError(action: string, path: string, error: unknown): StateError {
  return new StateError(
    `${path} cannot ${action} (${systemErrorCode(error)}): check this user's permissions and the free disk space`,
    error,
  );
}
