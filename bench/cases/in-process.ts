/** The library with the memory driver against async-mutex, which has neither lease, token nor signal. */

import type { BenchCase, Check, Findings } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { cpuPerPair, interleave, pairRates, starvedCallers, toRow } from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";

const HOLDFAST = "holdfast, memory";
const THIRD_PARTY = "async-mutex";

export const inProcessUncontended: BenchCase = {
  name: "in-process",
  title: "In process, uncontended",
  about: "One caller, one key, in a loop. async-mutex has neither lease, token nor signal.",
  run: () => compareNames([HOLDFAST, THIRD_PARTY, "memory driver alone"], 1),
};

export const inProcessContended: BenchCase = {
  name: "in-process-64",
  title: "In process, 64 callers on one key",
  about: "64 callers of one process, each in a loop.",
  run: () => compareNames([HOLDFAST, THIRD_PARTY], 64),
};

async function compareNames(names: readonly string[], callers: number): Promise<Findings> {
  const rounds = await interleave(names, () => ({ callers, keys: 1, ms: 600, latencies: false }));
  const holdfast = rounds(HOLDFAST);
  const thirdParty = rounds(THIRD_PARTY);
  const checks: Check[] = [
    check("goal", `rate of ${THIRD_PARTY}`, computeRatio(pairRates(holdfast), pairRates(thirdParty)), "at least", 1),
  ];
  if (callers > 1)
    checks.push(check("gate", "callers that got nothing", computeSpread(starvedCallers(holdfast)), "exactly", 0));
  const cpuOf = { [`CPU of ${THIRD_PARTY}`]: computeRatio(cpuPerPair(holdfast), cpuPerPair(thirdParty)) };
  return { rows: names.map((name) => toRow(name, rounds(name), name === HOLDFAST ? cpuOf : {})), checks };
}
