import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import type { NemesisEvent } from "../../../src/torture/history.ts";
import type { WorkerSettings } from "../../../src/torture/worker.ts";
import type { RunningWorker } from "../../../src/torture/worker-pool.ts";
import { WorkerPool } from "../../../src/torture/worker-pool.ts";

const TIMEOUT = { timeout: 30_000 };

type Phase = Extract<NemesisEvent, { event: "worker" }>["phase"];

/** @param program of each worker */
function startPool(program: string, places = 1): { pool: WorkerPool; count(phase: Phase): number } {
  const events: NemesisEvent[] = [];
  const pool = new WorkerPool({
    command: [process.execPath, "--eval", program],
    places,
    settingsOf: (worker) => ({ worker }) as WorkerSettings,
    report: (event) => void events.push(event),
    now: () => 0,
  });
  return { pool, count: (phase) => events.filter((event) => event.event === "worker" && event.phase === phase).length };
}

test("a worker whose library ends it is replaced", TIMEOUT, async () => {
  const { pool, count } = startPool(`process.stdout.write("ready", () => process.exit(3))`);
  await until(() => count("started") > 1, { within: 20_000, what: "the second worker" });
  await pool.abort();
  expect(count("ended")).toBeGreaterThan(0);
});

test("all are replaced once they have ended, and not before", TIMEOUT, async () => {
  const { pool, count } = startPool(`process.stdout.write("ready"); setInterval(() => undefined, 1000)`, 2);
  await until(() => pool.candidates.length === 2, { within: 20_000, what: "two workers" });
  await pool.replaceAll(async (pids) => {
    expect(pids.length).toBe(2);
    for (const pid of pids) process.kill(pid, "SIGKILL");
    await until(() => pool.at([0, 1]).length === 0, { within: 20_000, what: "the end of both" });
    expect(count("started")).toBe(2);
  });
  await until(() => pool.candidates.length === 2, { within: 20_000, what: "two others" });
  expect([count("started"), count("killed")]).toEqual([4, 2]);
  await pool.abort();
});

test("one that cannot start is not", TIMEOUT, async () => {
  const { pool, count } = startPool("process.exit(3)");
  await until(() => count("ended") > 0, { within: 20_000, what: "the end of the worker" });
  await turn();
  expect(count("started")).toBe(1);
  await pool.abort();
});

test("faults wait until all workers take locks", TIMEOUT, async () => {
  const { pool } = startPool(`process.stdout.write("ready"); process.stdin.resume()`, 2);
  await pool.whenReady(20_000, new AbortController().signal);
  expect(pool.candidates.length).toBe(2);
  await pool.abort();
});

test("a fault waits until its worker holds locks, and no longer than the time that it gives", TIMEOUT, async () => {
  const { pool } = startPool(`
    process.stdout.write("ready");
    process.stdin.on("data", (text) => String(text).includes('"ms":7') && process.stdout.write("holding"));
  `);
  await pool.whenReady(20_000, new AbortController().signal);
  const [worker] = pool.candidates as [RunningWorker];
  const measure = async (holdMs: number, withinMs: number): Promise<number> => {
    const beganAt = performance.now();
    await pool.holdLong(worker, holdMs, withinMs);
    return performance.now() - beganAt;
  };
  expect(await measure(7, 20_000)).toBeLessThan(15_000);
  expect(await measure(8, 50)).toBeGreaterThan(40);
  await pool.abort();
});
