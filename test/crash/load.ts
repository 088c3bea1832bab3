/** Processes that use a few locks as fast as they can, and what must hold of them whatever is done to their server. */

import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import type { Register } from "./register.ts";
import type { Scene } from "./scene.ts";
import type { Worker } from "./worker.ts";
import { worker } from "./worker.ts";

/** Loose: the machine may be busy with something else. */
export const WITHIN_MS = 20_000;
export const WORKERS = 8;
const KEYS = ["a", "b"];

/** The processes, at work. */
export async function loaded(
  here: Scene,
  url: string,
  register: Register,
  env: Readonly<Record<string, string>> = {},
): Promise<Worker[]> {
  const workers = await Promise.all(Array.from({ length: WORKERS }, () => worker(here, url, register.path, env)));
  for (const one of workers) one.tell({ do: "load", of: "load", keys: KEYS, holdMs: 20 });
  return workers;
}

/** Each of them has had a turn since then, lost nothing, and was never inside together with another. They end. */
export async function allProceeded(workers: readonly Worker[], register: Register, since: bigint): Promise<void> {
  const proceeded = (): Set<number> => new Set(register.log.filter(({ at }) => at > since).map(({ pid }) => pid));
  await until(() => proceeded().size === workers.length, { within: WITHIN_MS, what: "a turn of each client" });
  for (const one of workers) one.tell({ do: "finish", of: "load" });
  for (const one of workers) {
    await one.told("load", "done", WITHIN_MS);
    expect(one.reports().filter(({ event }) => event === "lost")).toEqual([]);
  }
  expect(register.faults()).toEqual([]);
}

/** The longest time in which nobody entered, in milliseconds. */
export function longestStop({ log }: Register): number {
  let longest = 0n;
  log.forEach(({ at }, n) => {
    const gap = at - (log[n - 1]?.at ?? at);
    if (gap > longest) longest = gap;
  });
  return Number(longest) / 1e6;
}
