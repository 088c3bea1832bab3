/** A file system of a few MiB in a mount namespace of its own, which outlives the processes that use it and can be filled. */

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { MountNamespace } from "./mount-namespace.ts";
import { startMountNamespace } from "./mount-namespace.ts";
import type { ProcessHarness } from "./process-harness.ts";

export interface SmallDisk extends MountNamespace {
  /** Where it is mounted, for processes that see it. */
  readonly path: string;
  /** Not a byte more fits. */
  fill(): void;
  /** There is room again. */
  clear(): void;
}

export async function mountSmallDisk(harness: ProcessHarness, name: string, mebibytes: number): Promise<SmallDisk> {
  const path = harness.path(name);
  mkdirSync(path, { mode: 0o700 });
  const namespace = await startMountNamespace(harness, `mount -t tmpfs -o size=${mebibytes}m,mode=0700 none "${path}"`);
  const fillerFile = namespace.pathFromOutside(join(path, "filler"));
  return {
    ...namespace,
    path,
    // cat ends when not a byte more fits
    fill: () => void spawnSync("sh", ["-c", `cat /dev/zero >"${fillerFile}"`], { stdio: "ignore" }),
    clear: () => rmSync(fillerFile, { force: true }),
  };
}
