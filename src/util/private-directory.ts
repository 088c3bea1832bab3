/** Makes the folders that are for this user alone: the user's directory, and the state of a server. */

import { lstatSync, mkdirSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** A folder cannot be made where it is wanted; the message says why. */
export class DirectoryError extends Error {
  /** Of the system, if it has one. */
  readonly code: string | undefined;
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "DirectoryError";
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
export function trimTrailingSlashes(path: string): string {
  return path.replace(/(?:\/+\.?)+$/, "") || "/";
}

/**
 * Makes the folder with mode 0700, and those that lead to it; gives those that were missing, the outermost first. What
 * stands there already, whatever it is, is left for the caller to check. One level at a time: Node's recursive mkdir never
 * ends below /proc.
 * @throws DirectoryError
 */
export function createPrivateDirectory(path: string): readonly string[] {
  const { missing } = findMissingDirectories(path);
  for (const directory of missing) {
    try {
      mkdirSync(directory, 0o700);
    } catch (error) {
      // somebody else was faster
      if ((error as NodeJS.ErrnoException).code === "EEXIST") continue;
      throw creationError(path, `${(error as NodeJS.ErrnoException).code} at ${directory}`, error);
    }
  }
  return missing;
}

/**
 * The folders that must be made for this one, the outermost first, and the one in which they would be made.
 * @throws DirectoryError if they cannot be
 */
export function findMissingDirectories(path: string): { readonly missing: readonly string[]; readonly parent: string } {
  const missing: string[] = [];
  if (statEntry(path, path) !== undefined) return { missing, parent: dirname(path) };
  let current = path;
  do {
    missing.unshift(current);
    if (dirname(current) === current) throw creationError(path, "the root folder is missing");
    current = dirname(current);
  } while (statEntry(current, path) === undefined);
  validateParent(current, path);
  return { missing, parent: current };
}

function statEntry(current: string, target: string): unknown {
  try {
    return lstatSync(current, { throwIfNoEntry: false });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // a file stands where a folder should lead on: it is found further up
    if (code === "ENOTDIR") return undefined;
    throw creationError(target, `${code} at ${current}`, error);
  }
}

function validateParent(parent: string, target: string): void {
  let isDirectory: boolean | undefined;
  try {
    isDirectory = statSync(parent, { throwIfNoEntry: false })?.isDirectory();
  } catch (error) {
    throw creationError(target, `${(error as NodeJS.ErrnoException).code} at ${parent}`, error);
  }
  if (isDirectory === undefined) throw creationError(target, `${parent} is a link to what does not exist`);
  if (!isDirectory) throw creationError(target, `${parent} is not a folder`);
  const fileSystem = process.platform === "linux" ? KERNEL_FILE_SYSTEMS.get(statfsSync(parent).type) : undefined;
  if (fileSystem !== undefined) throw creationError(target, `${parent} belongs to the kernel (${fileSystem})`);
}

function creationError(target: string, reason: string, cause?: unknown): DirectoryError {
  return new DirectoryError(`${target} cannot be made: ${reason}`, cause);
}
