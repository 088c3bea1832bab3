/** Creates directories that only this user may access: the user's directory, and the state directory of a server. */

import { lstatSync, mkdirSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** A directory cannot be created; the message has the reason. */
export class DirectoryError extends Error {
  /** The code of the system's error, if there is one. */
  readonly code: string | undefined;
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "DirectoryError";
    this.code = (cause as NodeJS.ErrnoException | undefined)?.code;
  }
}

/** File systems of the Linux kernel that store no files, by their numbers in statfs(2). */
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

/** Removes a trailing "/" or "/.", with which the system would follow a link at the end of the path: "/a/." becomes "/a". */
export function trimTrailingSlashes(path: string): string {
  return path.replace(/(?:\/+\.?)+$/, "") || "/";
}

/**
 * Creates the directory and its missing parents with mode 0700. Returns those that were missing, the outermost first. An
 * existing file or directory is left for the caller to check. Creates one level at a time, since Node's recursive mkdir
 * never returns below /proc.
 * @throws DirectoryError
 */
export function createPrivateDirectory(path: string): readonly string[] {
  const { missing } = findMissingDirectories(path);
  for (const directory of missing) {
    try {
      mkdirSync(directory, 0o700);
    } catch (error) {
      // another process has created it meanwhile
      if ((error as NodeJS.ErrnoException).code === "EEXIST") continue;
      throw creationError(path, `${(error as NodeJS.ErrnoException).code} at ${directory}`, error);
    }
  }
  return missing;
}

/**
 * Returns the missing directories of a path, the outermost first, and the existing parent of the first one.
 * @throws DirectoryError if they cannot be created
 */
export function findMissingDirectories(path: string): { readonly missing: readonly string[]; readonly parent: string } {
  const missing: string[] = [];
  if (statEntry(path, path) !== undefined) return { missing, parent: dirname(path) };
  let current = path;
  do {
    missing.unshift(current);
    if (dirname(current) === current) throw creationError(path, "the root directory is missing");
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
    // a parent is a file: validateParent() reports it further up
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
  if (isDirectory === undefined) throw creationError(target, `${parent} is a link to a path that does not exist`);
  if (!isDirectory) throw creationError(target, `${parent} is not a directory`);
  const fileSystem = process.platform === "linux" ? KERNEL_FILE_SYSTEMS.get(statfsSync(parent).type) : undefined;
  if (fileSystem !== undefined) throw creationError(target, `${parent} belongs to the kernel (${fileSystem})`);
}

function creationError(target: string, reason: string, cause?: unknown): DirectoryError {
  return new DirectoryError(`${target} cannot be created: ${reason}`, cause);
}
