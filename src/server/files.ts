/** Files that only we may have written: opened without following links, refused when somebody else could reach them. */

import type { BigIntStats } from "node:fs";
import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { lstat, open, readdir, rename, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { FolderError, makePrivateFolder } from "../private-folder.ts";

/** What stands on the disk cannot be used as it is; the message says what to do. */
export class StateError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StateError";
  }
}

/** What file systems and version control leave in a folder that is empty otherwise. */
const HARMLESS: readonly string[] = ["lost+found", ".keep", ".gitkeep"];

/**
 * Makes the folder, for us alone, or checks the one that is there. One of ours that is empty, and in which nobody else can
 * have written, is closed to others; `told` hears of it.
 * @throws StateError if it cannot be made, is a link, not a folder, another user's, or open to others
 */
export async function privateFolder(path: string, told: (message: string) => void): Promise<void> {
  const made = newFolders(path);
  const open = await checkFolder(path);
  if (open !== null) {
    await closeFolder(path);
    told(`${path} is empty and was open to others (mode ${open}): it has mode 700 now`);
  }
  for (const folder of made) await syncFolder(dirname(folder));
}

/**
 * Checks a folder that is there. Null: it is for us alone; else its mode, if it is empty and may be closed to others.
 * @throws StateError if it cannot be used
 */
export async function checkFolder(path: string): Promise<string | null> {
  const stats = await lstat(path, { bigint: true });
  if (stats.isSymbolicLink()) throw new StateError(`${path} is a link: name the folder itself`);
  if (!stats.isDirectory()) throw new StateError(`${path} is not a folder: name a folder for the server's state`);
  if (await isToBeClosed(path, stats)) return modeOf(stats);
  checkOwner(path, stats, "700");
  return null;
}

/** Is it ours and empty, and may others only look into it? */
async function isToBeClosed(path: string, { uid, mode }: BigIntStats): Promise<boolean> {
  if (uid !== BigInt(process.getuid?.() ?? -1) || (mode & 0o077n) === 0n || (mode & 0o1022n) !== 0n) return false;
  return (await readdir(path)).every((name) => HARMLESS.includes(name));
}

async function closeFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await folder.chmod(0o700);
  } finally {
    await folder.close();
  }
}

/** Makes the folder and those that lead to it, and gives them. @throws StateError if it cannot be made */
function newFolders(path: string): readonly string[] {
  try {
    return makePrivateFolder(path);
  } catch (error) {
    if (error instanceof FolderError) throw new StateError(`${error.message}; name another folder`, error);
    throw error;
  }
}

/** Opens a file of ours; null if there is none. @throws StateError if somebody else could have written it */
export async function openOurs(path: string, flags: number): Promise<FileHandle | null> {
  let file: FileHandle;
  try {
    file = await open(path, flags | constants.O_NOFOLLOW, 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return null;
    if (code === "ELOOP") throw new StateError(`${path} is a link: put the file itself there`, error);
    throw cannot("be opened", path, error as NodeJS.ErrnoException);
  }
  try {
    const stats = await file.stat({ bigint: true });
    if (!stats.isFile()) throw new StateError(`${path} is not a file: move it away`);
    if (stats.nlink > 1n) throw new StateError(`${path} has a second name (a hard link): remove that one`);
    checkOwner(path, stats, "600");
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The text of a file of ours, or null. */
export async function readOurs(path: string): Promise<string | null> {
  const file = await openOurs(path, constants.O_RDONLY);
  if (file === null) return null;
  try {
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/** Replaces a file so that, whatever happens, the old or the new one stands there; settles when it would survive a loss of power. */
export async function replace(path: string, text: string): Promise<void> {
  try {
    await replaceIn(`${path}.new`, path, text);
  } catch (error) {
    throw Object.assign(cannot("be written", path, error as NodeJS.ErrnoException), {
      code: (error as NodeJS.ErrnoException).code,
    });
  }
}

async function replaceIn(temporary: string, path: string, text: string): Promise<void> {
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
  await syncFolder(dirname(path));
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function checkOwner(path: string, stats: BigIntStats, mode: string): void {
  const user = process.getuid?.();
  if (user === undefined) return;
  if (stats.uid !== BigInt(user))
    throw new StateError(`${path} belongs to another user: remove it or run as its owner`);
  if ((stats.mode & 0o077n) === 0n) return;
  throw new StateError(
    `${path} is open to others (mode ${modeOf(stats)}): chmod ${mode} it if you trust what is in it`,
  );
}

function modeOf({ mode }: BigIntStats): string {
  return (mode & 0o777n).toString(8);
}

function cannot(what: string, path: string, error: NodeJS.ErrnoException): StateError {
  return new StateError(
    `${path} cannot ${what} (${error.code}): see that this user may, and that the disk has room`,
    error,
  );
}
