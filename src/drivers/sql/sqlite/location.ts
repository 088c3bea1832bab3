/**
 * Where the file of a database may be. SQLite coordinates its users by two files that it finds by name, -wal and -shm,
 * and by file locks and shared memory of the kernel. A user who has another name of the file, or reaches it through
 * another mount, another machine or another kernel, is coordinated with no other user: two hold one lock, and neither
 * gets an error.
 */

import { statSync } from "node:fs";
import { dirname } from "node:path";
import { StoreRefusedError } from "../../../errors.ts";
import type { Mount } from "../../../os/mounts.ts";
import { findLocksPerMount, readFileSystemNumber, readMounts } from "../../../os/mounts.ts";

/** Why a file is unusable where it is, and what to do. */
export interface LocationFault {
  readonly message: string;
  readonly hint: string;
}

/** Those of networks, by their numbers in statfs(2): two machines share neither locks nor memory. */
const NETWORK_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "SMB"],
  [0xfe534d42, "SMB"],
  [0x5346414f, "AFS"],
  [0x6b414653, "AFS"],
  [0x00c36400, "Ceph"],
  [0x0bd00bd0, "Lustre"],
]);

/** The files that must be the same for all users of a database, by what follows its path. */
const SUFFIXES: readonly string[] = ["", "-wal", "-shm"];

/** @throws StoreRefusedError if the locks of the file could have two holders */
export function verifyLocation(realPath: string): void {
  const fault = findLocationFault(realPath);
  if (fault !== null) throw new StoreRefusedError(`sqlite: ${fault.message}: ${fault.hint}`);
}

/** `realPath`: absolute, without links. null: no fault is known. */
export function findLocationFault(realPath: string, mounts: readonly Mount[] = readMounts()): LocationFault | null {
  const names = SUFFIXES.map((suffix) => realPath + suffix);
  const linked = names.find((name) => hasSecondName(statSync(name, { throwIfNoEntry: false, bigint: true })));
  if (linked !== undefined) return explainSecondName(linked);
  const mounted = names.find((name) => mounts.some(({ point }) => point === name));
  if (mounted !== undefined)
    return {
      message: `${mounted} is mounted by itself, without the files that SQLite keeps beside it, so two processes could hold one lock`,
      hint: `mount the folder ${dirname(realPath)} instead of the file`,
    };
  const fileSystem =
    findLocksPerMount(realPath, mounts) ?? NETWORK_FILE_SYSTEMS.get(readFileSystemNumber(realPath) ?? 0) ?? null;
  if (fileSystem === null) return null;
  return {
    message: `${realPath} is on ${fileSystem}, through which two processes could hold one lock`,
    hint: "put it on a local file system (in a container: a volume, not a folder of another machine); processes on several machines need another store",
  };
}

/** A hard link. */
export function hasSecondName(stat: { readonly nlink: bigint } | undefined): boolean {
  return stat !== undefined && stat.nlink > 1n;
}

export function explainSecondName(path: string): LocationFault {
  return {
    message: `${path} has a second name (a hard link), under which another process could hold the same lock`,
    hint: "remove all names but one; a symbolic link is no second name",
  };
}
