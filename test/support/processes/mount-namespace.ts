/**
 * A mount namespace of its own: mounts that only the processes started in it see, and that end with them. Root makes one,
 * or a user where the system gives users namespaces; elsewhere there is none.
 */

import { spawnSync } from "node:child_process";

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
