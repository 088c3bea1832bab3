/**
 * Several processes with the same schedule, jobs that take no time, and clocks that differ, while summer time ends or begins: each tick
 * runs once. The file that the jobs write says what has run; the processes only say with which ticks they have come.
 */

import { readFileSync, rmSync } from "node:fs";
import { basename } from "node:path";
import { afterAll, beforeAll, expect, vi } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { RunningProcess } from "../support/processes/process-harness.ts";
import { test } from "../support/processes/process-harness.ts";
import { compilePrograms, createProgramFolder } from "../support/typescript-programs.ts";

const TICKS = 50;

vi.setConfig({ maxConcurrency: 7, testTimeout: 90_000 });

let folder = "";
const programs = new Map<string, string>();

beforeAll(async () => {
  folder = createProgramFolder();
  const sources = ["cron-worker", "cron-nest-worker", "cron-clock"].map(
    (name) => `test/frameworks/programs/${name}.ts`,
  );
  const options = { experimentalDecorators: true, emitDecoratorMetadata: true };
  for (const path of await compilePrograms(folder, "typescript7", sources, options))
    programs.set(basename(path, ".js"), path);
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Worker {
  readonly aheadMs: number;
  readonly dies?: true;
}

interface Scene {
  readonly scheduler: string;
  readonly store: "server" | "sqlite";
  /** In Europe/Berlin. */
  readonly change: "summer time begins" | "summer time ends";
  readonly workers: readonly Worker[];
}

const CHANGES = { "summer time begins": "2026-03-29T01:00:00Z", "summer time ends": "2026-10-25T01:00:00Z" } as const;
/** By their clocks, when the processes start: most of it has passed when all of them are ready. */
const BEFORE_CHANGE_MS = 40_000;

const worker = (aheadMs: number): Worker => ({ aheadMs });

const SCENES: readonly Scene[] = [
  { scheduler: "nest", store: "sqlite", change: "summer time ends", workers: [2_000, 0, -1_500].map(worker) },
  { scheduler: "croner", store: "sqlite", change: "summer time ends", workers: [1_000, 0, -1_000].map(worker) },
  { scheduler: "cron", store: "server", change: "summer time begins", workers: [1_500, 0, -2_000].map(worker) },
  { scheduler: "node-schedule", store: "server", change: "summer time ends", workers: [3_000, 0, 20].map(worker) },
  { scheduler: "node-cron", store: "sqlite", change: "summer time begins", workers: [900, 0, -30].map(worker) },
  {
    scheduler: "node-cron with a coordinator",
    store: "server",
    change: "summer time ends",
    workers: [0, 0, 0].map(worker),
  },
  {
    scheduler: "interval",
    store: "server",
    change: "summer time begins",
    workers: [{ aheadMs: 30, dies: true }, ...[0, 0, -40].map(worker)],
  },
];

/** cron reports that it was late, and what it does then. */
const CRON_WARNING = /^\[Cron\] Missed execution deadline by .*\n/gm;

/** The ticks that a process has come with and has decided about. */
function ticksOf(worker: RunningProcess): string[] {
  return [...worker.out().matchAll(/^came (\S+)$/gm)].map(([, tick = ""]) => tick);
}

test.concurrent.for(SCENES)(
  "processes with $scheduler run each tick once, while $change",
  async ({ scheduler, store, change, workers }, { harness }) => {
    const url = store === "server" ? (await harness.serve()).url : `sqlite:${harness.path("locks.db")}`;
    const runs = harness.path("runs");
    const program = programs.get(scheduler === "nest" ? "cron-nest-worker" : "cron-worker") as string;
    // the package is a link: its import of @nestjs/schedule must find the one of the program
    const env = { HOLDFAST_URL: url, NODE_OPTIONS: "--preserve-symlinks" };
    const start = [Date.now(), Date.parse(CHANGES[change]) - BEFORE_CHANGE_MS];
    const startWorker = ({ aheadMs, dies }: Worker): RunningProcess => {
      const args = [program, scheduler, runs, ...start.map(String), String(aheadMs), dies ? "dies" : ""];
      return harness.startProgram([process.execPath, ...args], { env });
    };
    const processes = workers.map(startWorker);
    const living = processes.filter((_process, index) => workers[index]?.dies === undefined);
    const mortal = processes.filter((worker) => !living.includes(worker));
    const alive = (): readonly RunningProcess[] => {
      for (const { hasEnded, err } of living)
        if (hasEnded() || err().replace(CRON_WARNING, "") !== "") throw new Error(err());
      return living;
    };
    const bound = { within: 30_000, what: "all processes" };
    await until(() => [...alive(), ...mortal].every((worker) => worker.out().includes("ready")), bound);
    await until(() => mortal.every((worker) => worker.hasEnded()), bound);
    // the first tick that all of them come with
    const first = await until(() => {
      const latest = alive().map((worker) => ticksOf(worker).at(-1));
      return latest.includes(undefined) ? null : latest.sort().at(-1);
    }, bound);
    const ticks = await until(
      () => {
        const all = [...new Set(alive().flatMap(ticksOf))].filter((tick) => tick >= first).sort();
        const last = all[TICKS - 1];
        // a process that is still behind might run a tick again
        const isOver = last !== undefined && alive().every((worker) => (ticksOf(worker).at(-1) ?? "") > last);
        return isOver ? all.slice(0, TICKS) : null;
      },
      { within: 60_000, what: `${TICKS} ticks` },
    );
    const lines = readFileSync(runs, "utf8").trimEnd().split("\n");
    expect(lines.filter((tick) => ticks.includes(tick)).sort()).toEqual(ticks);
    // the ticks before, too, and those of a process that died in the middle of one
    expect(new Set(lines).size).toBe(lines.length);
    for (const worker of mortal) expect(worker.process.signalCode).toBe("SIGKILL");
  },
);
