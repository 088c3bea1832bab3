/**
 * Four processes with the same schedule, jobs that take no time, and clocks that differ: each tick runs once. The file that the
 * jobs write says what has run; the processes only say with which ticks they have come.
 */

import { readFileSync, rmSync } from "node:fs";
import { afterAll, beforeAll, expect, vi } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { RunningProcess } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { compilePrograms, createProgramFolder } from "../support/typescript-programs.ts";

const TICKS = IS_LONG_RUN ? 50 : 10;

vi.setConfig({ maxConcurrency: 3, testTimeout: 60_000 + TICKS * 2_000 });

let folder = "";
let program = "";

beforeAll(async () => {
  folder = createProgramFolder();
  [program = ""] = await compilePrograms(folder, "typescript7", ["test/frameworks/programs/cron-worker.ts"]);
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Worker {
  readonly aheadMs: number;
  readonly dies?: true;
}

interface Scene {
  readonly scheduler: "croner" | "node-cron" | "interval";
  readonly store: "server" | "sqlite";
  readonly workers: readonly Worker[];
}

const SCENES: readonly Scene[] = [
  { scheduler: "node-cron", store: "server", workers: [0, 0, 0, 0].map((aheadMs) => ({ aheadMs })) },
  { scheduler: "croner", store: "sqlite", workers: [1_000, 0, 0, -1_000].map((aheadMs) => ({ aheadMs })) },
  {
    scheduler: "interval",
    store: "server",
    workers: [{ aheadMs: 30, dies: true }, { aheadMs: 0 }, { aheadMs: 0 }, { aheadMs: -40 }],
  },
];

/** The ticks that a process has come with and has decided about. */
function ticksOf(worker: RunningProcess): string[] {
  return [...worker.out().matchAll(/^came (\S+)$/gm)].map(([, tick = ""]) => tick);
}

test.concurrent.for(SCENES)(
  "four processes with $scheduler run each tick once",
  async ({ scheduler, store, workers }, { harness }) => {
    const url = store === "server" ? (await harness.serve()).url : `sqlite:${harness.path("locks.db")}`;
    const runs = harness.path("runs");
    const env = { HOLDFAST_URL: url };
    const start = ({ aheadMs, dies }: Worker): RunningProcess =>
      harness.startProgram([process.execPath, program, scheduler, runs, String(aheadMs), dies ? "dies" : ""], { env });
    const processes = workers.map(start);
    const living = processes.filter((_process, index) => workers[index]?.dies === undefined);
    const mortal = processes.filter((worker) => !living.includes(worker));
    const alive = (): readonly RunningProcess[] => {
      for (const worker of living) if (worker.hasEnded() || worker.err() !== "") throw new Error(worker.err());
      return living;
    };
    const bound = { within: 30_000, what: "four processes" };
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
      { within: 30_000 + TICKS * 1_000, what: `${TICKS} ticks` },
    );
    const lines = readFileSync(runs, "utf8").trimEnd().split("\n");
    expect(lines.filter((tick) => ticks.includes(tick)).sort()).toEqual(ticks);
    // the ticks before, too, and those of a process that died in the middle of one
    expect(new Set(lines).size).toBe(lines.length);
    for (const worker of mortal) expect(worker.process.signalCode).toBe("SIGKILL");
  },
);
