/** A file system of a few MiB in a mount namespace of its own, which outlives the processes that use it and can be filled. */

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { until } from "../until.ts";
import { inMountNamespace, MOUNT_NAMESPACE_COMMAND } from "./mount-namespace.ts";
import type { ProcessHarness } from "./process-harness.ts";

export interface SmallDisk {
  /** Where it is mounted, for processes that see it. */
  readonly path: string;
  /** What to put before a command that shall see it. */
  readonly commandPrefix: readonly string[];
  /** Not a byte more fits. */
  fill(): void;
  /** There is room again. */
  clear(): void;
}

/** Why there can be none here; null if there can. */
export const smallDiskUnavailableReason: string | null =
  MOUNT_NAMESPACE_COMMAND !== null && !MOUNT_NAMESPACE_COMMAND.includes("-rm")
    ? null
    : "only root may mount a small disk";

export async function mountSmallDisk(harness: ProcessHarness, name: string, mebibytes: number): Promise<SmallDisk> {
  const path = harness.path(name);
  mkdirSync(path, { mode: 0o700 });
  const mount = `mount -t tmpfs -o size=${mebibytes}m,mode=0700 none "${path}"\necho mounted`;
  const [program, ...args] = inMountNamespace(mount, ["sleep", "7200"]);
  const mountProcess = harness.startProgram([program, ...args]);
  await until(() => mountProcess.out().includes("mounted"), { within: 10_000, what: "the small disk" });
  const fillerFile = join(`/proc/${mountProcess.pid}/root`, path, "filler");
  return {
    path,
    commandPrefix: ["nsenter", "-m", `--wd=${harness.folder}`, "-t", String(mountProcess.pid), "--"],
    // cat ends when not a byte more fits
    fill: () => void spawnSync("sh", ["-c", `cat /dev/zero >"${fillerFile}"`], { stdio: "ignore" }),
    clear: () => rmSync(fillerFile, { force: true }),
  };
}
