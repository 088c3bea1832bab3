/** What was measured and where; and waiting until the machine is quiet. */

import { spawnSync } from "node:child_process";
import { cpus, totalmem, type } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

export interface Circumstances {
  readonly commit: string;
  /** Files of the working tree differ from the commit. */
  readonly changed: boolean;
  readonly date: string;
  readonly node: string;
  readonly machine: string;
  /** Cores that others kept busy just before the rounds: median and most. */
  readonly otherLoad: { readonly median: number; readonly most: number };
}

/** @param folder of the working tree */
export function commit(folder = "."): { readonly commit: string; readonly changed: boolean } {
  const git = (...args: string[]): string =>
    spawnSync("git", ["-C", folder, ...args], { encoding: "utf8" }).stdout?.trim() ?? "";
  return {
    commit: git("rev-parse", "--short=12", "HEAD") || "unknown",
    changed: git("status", "--porcelain", "--untracked-files=no", "--", "src", "bench", "package.json") !== "",
  };
}

export function machine(): string {
  const all = cpus();
  const gib = Math.round(totalmem() / 2 ** 30);
  return `${all.length} cores (${all[0]?.model.trim() ?? "unknown"}), ${gib} GiB, ${type()}`;
}

const QUIET_CORES = 0.25;
const PATIENCE_MS = 2_000;
const LOOK_MS = 100;

const loads: number[] = [];

/** The load that others made before each measurement so far. */
export function otherLoads(): readonly number[] {
  return loads;
}

/** Waits, within a bound, until less than a quarter of a core is busy, and records what it found. */
export async function quiet(patienceMs = PATIENCE_MS): Promise<void> {
  const until = performance.now() + patienceMs;
  for (;;) {
    const load = await busyCores();
    if (load >= QUIET_CORES && performance.now() < until) continue;
    loads.push(load);
    return;
  }
}

async function busyCores(): Promise<number> {
  const before = times();
  await delay(LOOK_MS);
  const after = times();
  const all = after.all - before.all;
  return all === 0 ? 0 : ((after.busy - before.busy) / all) * cpus().length;
}

function times(): { readonly busy: number; readonly all: number } {
  let busy = 0;
  let idle = 0;
  for (const { times: one } of cpus()) {
    busy += one.user + one.nice + one.sys + one.irq;
    idle += one.idle;
  }
  return { busy, all: busy + idle };
}
