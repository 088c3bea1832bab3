/** Processes that use a few locks as fast as they can, and what must hold of them whatever is done to their server. */

import { expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import type { FencedRegister } from "./fenced-register.ts";
import type { ProcessHarness } from "./process-harness.ts";
import type { Worker } from "./worker.ts";
import { startWorker } from "./worker.ts";

/** Loose: the machine may be busy with something else. */
export const PROGRESS_TIMEOUT_MS = 20_000;
export const WORKER_COUNT = 8;
const KEYS = ["a", "b"];

/** The processes, at work. */
export async function startWorkload(
  harness: ProcessHarness,
  url: string,
  register: FencedRegister,
  env: Readonly<Record<string, string>> = {},
): Promise<Worker[]> {
  const workers = await Promise.all(
    Array.from({ length: WORKER_COUNT }, () => startWorker(harness, url, register.path, env)),
  );
  for (const lockWorker of workers) lockWorker.send({ do: "load", of: "load", keys: KEYS, holdMs: 20 });
  return workers;
}

/** Each of them has had a turn since then, lost nothing, and was never inside together with another. They end. */
export async function expectAllProceeded(
  workers: readonly Worker[],
  register: FencedRegister,
  since: bigint,
): Promise<void> {
  const proceeded = (): Set<number> => new Set(register.log.filter(({ at }) => at > since).map(({ pid }) => pid));
  await until(() => proceeded().size === workers.length, {
    within: PROGRESS_TIMEOUT_MS,
    what: "a turn of each client",
  });
  for (const worker of workers) worker.send({ do: "finish", of: "load" });
  for (const worker of workers) {
    await worker.waitForReport("load", "done", PROGRESS_TIMEOUT_MS);
    expect(worker.reports().filter(({ event }) => event === "lost")).toEqual([]);
  }
  expect(register.faults()).toEqual([]);
}

/** The longest time in which nobody entered, in milliseconds. */
export function longestGapMs({ log }: FencedRegister): number {
  let longest = 0n;
  log.forEach(({ at }, n) => {
    const gap = at - (log[n - 1]?.at ?? at);
    if (gap > longest) longest = gap;
  });
  return Number(longest) / 1e6;
}
