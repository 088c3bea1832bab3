/**
 * A mount namespace of its own: mounts that only the processes started in it see, and that end with them. Root makes one,
 * or a user where the system gives users namespaces; elsewhere there is none.
 */

import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../../src/testing/until.ts";
import type { ProcessHarness } from "./process-harness.ts";

/** What to put before a command, or null where nothing may be mounted. */
export const MOUNT_NAMESPACE_COMMAND: readonly [string, ...string[]] | null = findNamespaceCommand();

/** The command, after these shell lines ran in a namespace of its own. */
export function inMountNamespace(setUp: string, command: readonly string[]): readonly [string, ...string[]] {
  if (MOUNT_NAMESPACE_COMMAND === null) throw new Error("mounting is not allowed harness");
  return [...MOUNT_NAMESPACE_COMMAND, "sh", "-c", `set -e\n${setUp}\nexec "$@"`, "sh", ...command] as const as [
    string,
    ...string[],
  ];
}

/** A namespace that outlives the processes that use it. */
export interface MountNamespace {
  /** What to put before a command that shall be in it. */
  readonly commandPrefix: readonly [string, ...string[]];
  /** The path by which a process outside of it reaches one of its files. */
  pathFromOutside(path: string): string;
}

/** Why a test can have none here; null if it can. */
export const mountNamespaceUnavailableReason: string | null =
  MOUNT_NAMESPACE_COMMAND !== null && !MOUNT_NAMESPACE_COMMAND.includes("-rm") ? null : "only root may mount";

/** A namespace in which these shell lines ran. It ends with the test. */
export async function startMountNamespace(harness: ProcessHarness, setUp: string): Promise<MountNamespace> {
  const [program, ...args] = inMountNamespace(`${setUp}\necho mounted`, ["sleep", "7200"]);
  const owner = harness.startProgram([program, ...args]);
  await until(() => owner.out().includes("mounted"), { within: 10_000, what: "the mounts" });
  return {
    commandPrefix: ["nsenter", "-m", `--wd=${harness.folder}`, "-t", String(owner.pid), "--"],
    pathFromOutside: (path) => `/proc/${owner.pid}/root${path}`,
  };
}

/** Why a test can have no file system in user space (FUSE) here; null if it can. */
export function fuseUnavailableReason(): string | null {
  if (mountNamespaceUnavailableReason !== null) return mountNamespaceUnavailableReason;
  if (!existsSync("/dev/fuse")) return "there is no /dev/fuse";
  return existsSync("/usr/bin/bindfs") ? null : "bindfs is not installed";
}

/** Mounts a folder once more at each of these, through a file system in user space. */
export async function mountBindfs(
  harness: ProcessHarness,
  { commandPrefix, pathFromOutside }: MountNamespace,
  folder: string,
  mounts: readonly string[],
): Promise<void> {
  const [program = "", ...prefix] = commandPrefix;
  writeFileSync(join(folder, "here"), "");
  for (const mount of mounts) {
    const bindfs = harness.startProgram([program, ...prefix, "bindfs", "-f", "--no-allow-other", folder, mount]);
    const isMounted = (): boolean => existsSync(pathFromOutside(join(mount, "here")));
    await until(isMounted, { within: 10_000, what: `bindfs on ${mount}: ${bindfs.err()}` });
  }
}

function findNamespaceCommand(): readonly [string, ...string[]] | null {
  for (const [unshare, flags] of [
    ["unshare", "-m"],
    ["unshare", "-rm"],
  ] as const) {
    const { status } = spawnSync(unshare, [flags, "mount", "-t", "tmpfs", "none", "/mnt"], { stdio: "ignore" });
    if (status === 0) return [unshare, flags];
  }
  return null;
}
