/** A file system of a few MiB in a mount namespace of its own, which outlives the processes that use it and can be filled. */

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { inNamespace, NAMESPACE } from "../crash/namespace.ts";
import type { Scene } from "../crash/scene.ts";
import { until } from "../support/wait-for.ts";

export interface SmallDisk {
  /** Where it is mounted, for processes that see it. */
  readonly path: string;
  /** What to put before a command that shall see it. */
  readonly before: readonly string[];
  /** Not a byte more fits. */
  fill(): void;
  /** There is room again. */
  clear(): void;
}

/** Why there can be none here; null if there can. */
export const whyNoSmallDisk: string | null =
  NAMESPACE !== null && !NAMESPACE.includes("-rm") ? null : "only root may mount a small disk";

export async function smallDisk(here: Scene, name: string, mebibytes: number): Promise<SmallDisk> {
  const path = here.path(name);
  mkdirSync(path, { mode: 0o700 });
  const mount = `mount -t tmpfs -o size=${mebibytes}m,mode=0700 none "${path}"\necho mounted`;
  const [program, ...args] = inNamespace(mount, ["sleep", "7200"]);
  const keeper = here.program([program, ...args]);
  await until(() => keeper.out().includes("mounted"), { within: 10_000, what: "the small disk" });
  const filler = join(`/proc/${keeper.pid}/root`, path, "filler");
  return {
    path,
    before: ["nsenter", "-m", `--wd=${here.folder}`, "-t", String(keeper.pid), "--"],
    // cat ends when not a byte more fits
    fill: () => void spawnSync("sh", ["-c", `cat /dev/zero >"${filler}"`], { stdio: "ignore" }),
    clear: () => rmSync(filler, { force: true }),
  };
}
