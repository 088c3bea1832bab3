/** The library with the memory driver against async-mutex, which has neither lease, token nor signal. */

import type { BenchCase, Check, Findings } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import { cpus, interleave, rates, rowOf, starved } from "../harness/rounds.ts";
import { ratioOf, spreadOf } from "../harness/stats.ts";

const OURS = "holdfast, memory";
const RIVAL = "async-mutex";

export const inProcessAlone: BenchCase = {
  name: "in-process",
  title: "In process, uncontended",
  about: "One caller, one key, in a loop. async-mutex has neither lease, token nor signal.",
  run: () => against([OURS, RIVAL, "memory driver alone"], 1),
};

export const inProcessCrowd: BenchCase = {
  name: "in-process-64",
  title: "In process, 64 callers on one key",
  about: "64 callers of one process, each in a loop.",
  run: () => against([OURS, RIVAL], 64),
};

async function against(names: readonly string[], callers: number): Promise<Findings> {
  const rounds = await interleave(names, () => ({ callers, keys: 1, ms: 600, latencies: false }));
  const ours = rounds(OURS);
  const rival = rounds(RIVAL);
  const checks: Check[] = [check("goal", `rate of ${RIVAL}`, ratioOf(rates(ours), rates(rival)), "at least", 1)];
  if (callers > 1) checks.push(check("gate", "callers that got nothing", spreadOf(starved(ours)), "exactly", 0));
  const cpuOf = { [`CPU of ${RIVAL}`]: ratioOf(cpus(ours), cpus(rival)) };
  return { rows: names.map((name) => rowOf(name, rounds(name), name === OURS ? cpuOf : {})), checks };
}
