/** What is mounted where, as this process sees it. Only Linux tells. */

import { readFileSync, statfsSync } from "node:fs";

/** A mounted file system, folder or file. */
export interface Mount {
  /** Its absolute path, without links. */
  readonly point: string;
  /** The name of its file system: "ext4", "fuse.sshfs". */
  readonly type: string;
}

/** In the order in which they were mounted; empty if the system does not tell. */
export function readMounts(): readonly Mount[] {
  try {
    return parseMounts(readFileSync("/proc/self/mountinfo", "utf8"));
  } catch {
    return [];
  }
}

/** Reads the lines of proc_pid_mountinfo(5). */
export function parseMounts(text: string): Mount[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      // a varying number of fields stands before the "-"
      const [fields = "", source = ""] = line.split(" - ");
      return { point: unescapeField(fields.split(" ")[4] ?? ""), type: unescapeField(source.split(" ")[0] ?? "") };
    });
}

/** The mount to which an absolute path without links leads; null: unknown. */
export function findMount(mounts: readonly Mount[], path: string): Mount | null {
  let found: Mount | null = null;
  for (const mount of mounts) {
    const isAbove = mount.point === "/" || path === mount.point || path.startsWith(`${mount.point}/`);
    // of two mounts at one point the later one hides the earlier
    if (isAbove && mount.point.length >= (found?.point.length ?? 0)) found = mount;
  }
  return found;
}

/**
 * File systems on which two mounts, as two containers have them of one folder, do not share file locks, by their numbers in
 * statfs(2). FUSE includes virtiofs. A process sees nothing of the other mounts.
 */
const LOCKS_PER_MOUNT: ReadonlyMap<number, string> = new Map([
  [0x65735546, "FUSE or virtiofs"],
  [0x01021997, "9P"],
  [0x786f4256, "a folder shared by VirtualBox"],
  [0x7c7c6673, "a folder shared by Parallels"],
]);

/** The same by name: Docker Desktop on macOS mounts this above virtiofs, and its number is not published. */
const TYPES_WITH_LOCKS_PER_MOUNT: readonly string[] = ["fakeowner"];

/** The file system of an absolute path without links, if two mounts of it do not share file locks; else null. */
export function findLocksPerMount(path: string, mounts: readonly Mount[] = readMounts()): string | null {
  const type = findMount(mounts, path)?.type ?? "";
  if (TYPES_WITH_LOCKS_PER_MOUNT.includes(type)) return type;
  return LOCKS_PER_MOUNT.get(readFileSystemNumber(path) ?? 0) ?? null;
}

/** As in statfs(2); null: the file was deleted meanwhile. */
export function readFileSystemNumber(path: string): number | null {
  try {
    return statfsSync(path).type >>> 0;
  } catch {
    return null;
  }
}

/** The kernel writes a space as \040, and tabs, newlines, backslashes and # alike. */
function unescapeField(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
