/** The program of each recipe runs as a user would run it: compiled together, each with a store of its own. */

import { readdirSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { afterAll, beforeAll, expect, vi } from "vitest";
import type { ProcessHarness, RunningProcess } from "../support/processes/process-harness.ts";
import { test } from "../support/processes/process-harness.ts";
import { compilePrograms, createProgramFolder } from "../support/typescript-programs.ts";
import { until } from "../support/until.ts";

const SOURCES = "examples/recipes";

vi.setConfig({ maxConcurrency: 3, testTimeout: 60_000 });

let folder = "";
const programs = new Map<string, string>();

beforeAll(async () => {
  folder = createProgramFolder();
  const sources = readdirSync(SOURCES).filter((name) => name.endsWith(".ts"));
  const compiled = await compilePrograms(
    folder,
    "typescript7",
    sources.map((name) => join(SOURCES, name)),
  );
  for (const path of compiled) programs.set(basename(path, ".js"), path);
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Env = Readonly<Record<string, string>>;

function start(harness: ProcessHarness, name: string, env: Env, args: readonly string[] = []): RunningProcess {
  return harness.startProgram([process.execPath, programs.get(name) as string, ...args], { env });
}

/** A file of SQLite of the test's own. */
function storeOf(harness: ProcessHarness): Env {
  return { HOLDFAST_URL: `sqlite:${harness.path("locks.db")}` };
}

/** Waits for the output of a program that must not fail meanwhile. */
function waitFor(running: RunningProcess, text: string, count = 1): Promise<unknown> {
  return until(
    () => {
      if (running.hasEnded() || running.err() !== "")
        throw new Error(`ended, or failed: ${running.out()}${running.err()}`);
      return running.out().split(text).length > count;
    },
    { within: 30_000, what: `${count} times ${text}` },
  );
}

/** Ends a program in an orderly way. */
async function terminate(running: RunningProcess): Promise<void> {
  running.process.kill("SIGTERM");
  expect([await running.ended, running.err()]).toEqual([{ code: 0, signal: null }, ""]);
}

test("every program is shown by a page", () => {
  const pages = readdirSync("docs/guide/recipes").map((name) => readFileSync(join("docs/guide/recipes", name), "utf8"));
  const shown = pages.flatMap((page) => [...page.matchAll(/^<!-- program (\S+) -->$/gm)].map(([, path]) => path));
  for (const name of readdirSync(SOURCES)) expect(shown).toContain(`${SOURCES}/${name}`);
});

test.concurrent.for(["cron", "node-cron"])(
  "%s: two processes run and skip the same ticks",
  async (name, { harness }) => {
    const env = storeOf(harness);
    const processes = [start(harness, name, env), start(harness, name, env)];
    for (const running of processes) await waitFor(running, "Z");
    for (const running of processes) await terminate(running);
    const lines = processes.flatMap((running) => running.out().trimEnd().split("\n"));
    const ran = lines.filter((line) => line.startsWith("report for "));
    expect(ran.length).toBeGreaterThan(0);
    expect(new Set(ran).size).toBe(ran.length);
    for (const line of lines) expect(line).toMatch(/^(report for \S+Z|skipped \S+Z: (taken|not-elected))$/);
  },
);
