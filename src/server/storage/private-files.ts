/** Files that only we may have written: opened without following links, refused when somebody else could reach them. */

import type { BigIntStats } from "node:fs";
import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { lstat, open, readdir, rename, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { createPrivateDirectory, DirectoryError } from "../../util/private-directory.ts";

/** What stands on the disk cannot be used as it is; the message says what to do. */
export class StateError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StateError";
  }
}

/** What file systems and version control leave in a folder that is empty otherwise. */
const IGNORED_NAMES: readonly string[] = ["lost+found", ".keep", ".gitkeep"];

/**
 * Makes the folder, for us alone, or checks the one that is there. One of ours that is empty, and in which nobody else can
 * have written, is closed to others; `log` hears of it.
 * @throws StateError if it cannot be made, is a link, not a folder, another user's, or open to others
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
 * Checks a folder that is there. Null: it is for us alone; else its mode, if it is empty and may be closed to others.
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

/** Is it ours and empty, and may others only look into it? */
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

/** Makes the folder and those that lead to it, and gives them. @throws StateError if it cannot be made */
function createDirectories(path: string): readonly string[] {
  try {
    return createPrivateDirectory(path);
  } catch (error) {
    if (error instanceof DirectoryError) throw new StateError(`${error.message}; name another directory`, error);
    throw error;
  }
}

/** Opens a file of ours; null if there is none. @throws StateError if somebody else could have written it */
export async function openPrivate(path: string, flags: number): Promise<FileHandle | null> {
  let file: FileHandle;
  try {
    file = await open(path, flags | constants.O_NOFOLLOW, 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return null;
    if (code === "ELOOP") throw new StateError(`${path} is a symbolic link: put the file itself there`, error);
    throw accessError("be opened", path, error as NodeJS.ErrnoException);
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

/** The text of a file of ours, or null. */
export async function readPrivate(path: string): Promise<string | null> {
  const file = await openPrivate(path, constants.O_RDONLY);
  if (file === null) return null;
  try {
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/** Replaces a file so that, whatever happens, the old or the new one stands there; settles when it would survive a loss of power. */
export async function replaceAtomically(path: string, text: string): Promise<void> {
  try {
    await writeAndRename(`${path}.new`, path, text);
  } catch (error) {
    throw Object.assign(accessError("be written", path, error as NodeJS.ErrnoException), {
      code: (error as NodeJS.ErrnoException).code,
    });
  }
}

async function writeAndRename(temporary: string, path: string, text: string): Promise<void> {
  await unlink(temporary).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
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

function accessError(action: string, path: string, error: NodeJS.ErrnoException): StateError {
  return new StateError(
    `${path} cannot ${action} (${error.code}): check this user's permissions and the free disk space`,
    error,
  );
}
