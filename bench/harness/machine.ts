/** What was measured and where; and waiting until the machine is quiet. */

import { spawnSync } from "node:child_process";
import { cpus, totalmem, type } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { Versions } from "./versions.ts";

export interface Environment {
  readonly commit: string;
  /** Files of the working tree differ from the commit. */
  readonly changed: boolean;
  readonly date: string;
  readonly node: string;
  readonly machine: string;
  readonly versions: Versions;
  /** Cores that others kept busy just before the rounds: median and most. */
  readonly otherLoad: { readonly median: number; readonly most: number };
}

/** @param folder of the working tree */
export function readCommit(folder = "."): { readonly commit: string; readonly changed: boolean } {
  return {
    commit: git(folder, "rev-parse", "--short=12", "HEAD") || "unknown",
    changed: hasChanges(folder, "src", "bench", "package.json"),
  };
}

/** The last commit that changed the product: results of it are still its own when tests, benches or pages have changed. */
export function readProductCommit(): { readonly commit: string; readonly changed: boolean } {
  return {
    commit: git(".", "log", "-1", "--format=%h", "--abbrev=12", "--", "src") || "unknown",
    changed: hasChanges(".", "src"),
  };
}

function hasChanges(folder: string, ...paths: readonly string[]): boolean {
  return git(folder, "status", "--porcelain", "--untracked-files=no", "--", ...paths) !== "";
}

function git(folder: string, ...args: readonly string[]): string {
  return spawnSync("git", ["-C", folder, ...args], { encoding: "utf8" }).stdout?.trim() ?? "";
}

export function describeMachine(): string {
  const cores = cpus();
  const gib = Math.round(totalmem() / 2 ** 30);
  return `${cores.length} cores (${cores[0]?.model.trim() ?? "unknown"}), ${gib} GiB, ${type()}`;
}

const IDLE_CORES = 0.25;
const MAX_WAIT_MS = 2_000;
/** When the last wait was in vain: a machine that is busy for minutes would only make the bench slow. */
const SHORT_WAIT_MS = 200;
const SAMPLE_MS = 100;

const loads: number[] = [];

/** The load that others made before each measurement so far. */
export function otherLoads(): readonly number[] {
  return loads;
}

/** Waits, within a bound, until less than a quarter of a core is busy, and records what it found. */
export async function waitForIdle(patienceMs?: number): Promise<void> {
  const wasBusy = (loads.at(-1) ?? 0) >= IDLE_CORES;
  const endsAt = performance.now() + (patienceMs ?? (wasBusy ? SHORT_WAIT_MS : MAX_WAIT_MS));
  for (;;) {
    const load = await busyCores();
    if (load >= IDLE_CORES && performance.now() < endsAt) continue;
    loads.push(load);
    return;
  }
}

async function busyCores(): Promise<number> {
  const before = cpuTimes();
  await delay(SAMPLE_MS);
  const after = cpuTimes();
  const all = after.all - before.all;
  return all === 0 ? 0 : ((after.busy - before.busy) / all) * cpus().length;
}

function cpuTimes(): { readonly busy: number; readonly all: number } {
  let busy = 0;
  let idle = 0;
  for (const { times: coreTimes } of cpus()) {
    busy += coreTimes.user + coreTimes.nice + coreTimes.sys + coreTimes.irq;
    idle += coreTimes.idle;
  }
  return { busy, all: busy + idle };
}
