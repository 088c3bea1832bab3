/** The library with the memory driver against async-mutex, which has neither lease, token nor signal. */

import type { BenchCase, Check, Findings } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { cpuPerPair, interleave, pairRates, starvedCallers, toRow } from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";

const HOLDFAST = "holdfast, memory";
const HOLDFAST_CACHED = "holdfast, memory, cached";
const HOLDFAST_USING = "holdfast, memory, using";
const THIRD_PARTY = "async-mutex";
/** A call of `using`, in pairs of acquire() and release(). */
const MAX_USING_COST = 1.5;
const REASONS = {
  "*":
    "A pair passes the lock table, a lease, a token, events and the promises of a driver that could be far away; async-mutex " +
    "has a queue and nothing else.",
};

export const inProcessUncontended: BenchCase = {
  name: "in-process",
  title: "In process, uncontended",
  about:
    "One caller, one key, in a loop. async-mutex has neither lease, token nor signal. `using` stands for calls of `using()` with a " +
    'function that does nothing, `cached` for a client with `cache: "10s"`.',
  headline: ["pairs/s"],
  reasons: REASONS,
  run: () => compareNames([HOLDFAST, THIRD_PARTY, HOLDFAST_CACHED, HOLDFAST_USING, "memory driver alone"], 1, 0.15),
};

export const inProcessContended: BenchCase = {
  name: "in-process-64",
  title: "In process, 64 callers on one key",
  about: "64 callers of one process, each in a loop.",
  headline: ["pairs/s"],
  reasons: REASONS,
  run: () => compareNames([HOLDFAST, THIRD_PARTY], 64, 1),
};

async function compareNames(names: readonly string[], callers: number, goal: number): Promise<Findings> {
  const rounds = await interleave(names, () => ({ callers, keys: 1, ms: 600, latencies: false }));
  const holdfast = rounds(HOLDFAST);
  const thirdParty = rounds(THIRD_PARTY);
  const checks: Check[] = [
    check("goal", `rate of ${THIRD_PARTY}`, computeRatio(pairRates(holdfast), pairRates(thirdParty)), "at least", goal),
  ];
  if (names.includes(HOLDFAST_CACHED)) {
    const rate = computeRatio(pairRates(rounds(HOLDFAST_CACHED)), pairRates(thirdParty));
    checks.push(check("goal", `cached: rate of ${THIRD_PARTY}`, rate, "at least", 0.4));
  }
  if (names.includes(HOLDFAST_USING)) {
    const cost = computeRatio(cpuPerPair(rounds(HOLDFAST_USING)), cpuPerPair(holdfast));
    checks.push(check("goal", "using(): CPU of acquire() and release()", cost, "at most", MAX_USING_COST));
  }
  if (callers > 1)
    checks.push(check("gate", "callers that got nothing", computeSpread(starvedCallers(holdfast)), "exactly", 0));
  const cpuOf = { [`CPU of ${THIRD_PARTY}`]: computeRatio(cpuPerPair(holdfast), cpuPerPair(thirdParty)) };
  return { rows: names.map((name) => toRow(name, rounds(name), name === HOLDFAST ? cpuOf : {})), checks };
}
