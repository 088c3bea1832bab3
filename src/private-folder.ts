/** Makes the folders that are for this user alone: the user's directory, and the state of a server. */

import { lstatSync, mkdirSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** A folder cannot be made where it is wanted; the message says why. */
export class FolderError extends Error {
  /** Of the system, if it has one. */
  readonly code: string | undefined;
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "FolderError";
    this.code = (cause as NodeJS.ErrnoException | undefined)?.code;
  }
}

/** File systems of the Linux kernel that keep nothing: their numbers, from statfs(2). */
const KERNEL_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0x9fa0, "proc"],
  [0x62656572, "sysfs"],
  [0x27e0eb, "cgroup"],
  [0x63677270, "cgroup2"],
  [0x1cd1, "devpts"],
  [0x64626720, "debugfs"],
  [0x74726163, "tracefs"],
  [0x73636673, "securityfs"],
  [0x62656570, "configfs"],
  [0xcafe4a11, "bpf"],
]);

/** The same path without what would make a link be followed that stands at its end: "/a/" and "/a/." are "/a". */
export function trimmedPath(path: string): string {
  return path.replace(/(?:\/+\.?)+$/, "") || "/";
}

/**
 * Makes the folder with mode 0700, and those that lead to it; gives those that were missing, the outermost first. What
 * stands there already, whatever it is, is left for the caller to check. One level at a time: Node's recursive mkdir never
 * ends below /proc.
 * @throws FolderError
 */
export function makePrivateFolder(path: string): readonly string[] {
  const { missing } = foldersToMake(path);
  for (const folder of missing) {
    try {
      mkdirSync(folder, 0o700);
    } catch (error) {
      // somebody else was faster
      if ((error as NodeJS.ErrnoException).code === "EEXIST") continue;
      throw cannotBeMade(path, `${(error as NodeJS.ErrnoException).code} at ${folder}`, error);
    }
  }
  return missing;
}

/**
 * The folders that must be made for this one, the outermost first, and the one in which they would be made.
 * @throws FolderError if they cannot be
 */
export function foldersToMake(path: string): { readonly missing: readonly string[]; readonly parent: string } {
  const missing: string[] = [];
  if (entryAt(path, path) !== undefined) return { missing, parent: dirname(path) };
  let at = path;
  do {
    missing.unshift(at);
    if (dirname(at) === at) throw cannotBeMade(path, "the root folder is missing");
    at = dirname(at);
  } while (entryAt(at, path) === undefined);
  checkParent(at, path);
  return { missing, parent: at };
}

function entryAt(at: string, path: string): unknown {
  try {
    return lstatSync(at, { throwIfNoEntry: false });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // a file stands where a folder should lead on: it is found further up
    if (code === "ENOTDIR") return undefined;
    throw cannotBeMade(path, `${code} at ${at}`, error);
  }
}

function checkParent(parent: string, path: string): void {
  let isFolder: boolean | undefined;
  try {
    isFolder = statSync(parent, { throwIfNoEntry: false })?.isDirectory();
  } catch (error) {
    throw cannotBeMade(path, `${(error as NodeJS.ErrnoException).code} at ${parent}`, error);
  }
  if (isFolder === undefined) throw cannotBeMade(path, `${parent} is a link to what does not exist`);
  if (!isFolder) throw cannotBeMade(path, `${parent} is not a folder`);
  const kind = process.platform === "linux" ? KERNEL_FILE_SYSTEMS.get(statfsSync(parent).type) : undefined;
  if (kind !== undefined) throw cannotBeMade(path, `${parent} belongs to the kernel (${kind})`);
}

function cannotBeMade(path: string, why: string, cause?: unknown): FolderError {
  return new FolderError(`${path} cannot be made: ${why}`, cause);
}
