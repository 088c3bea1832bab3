/** Our server over TCP with eight client processes. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { interleaveProcessGroups } from "../harness/process-groups.ts";
import type { Round } from "../harness/rounds.ts";
import { cpuPerPair, pairRates, toRow } from "../harness/rounds.ts";
import { computeRatio } from "../harness/stats.ts";

const HOLDFAST = "holdfast";
const BASELINE = "floor B";
const THIRD_PARTY = "live-mutex";
/** What our client and our frames cost before a server does anything for them. */
const MINIMAL_SERVER = "bare queue, our frames";

export const multiProcess: BenchCase = {
  name: "processes",
  title: "Our server on TCP, 8 processes with 64 callers each",
  about: "Every caller on keys that no other caller wants then. Floor B: a bare map of queues behind the same frames.",
  headline: ["pairs/s"],
  async run() {
    const names = [HOLDFAST, BASELINE, MINIMAL_SERVER, THIRD_PARTY];
    // a fifth of a core each: in a shorter round V8 has hardly grown its young generation back when it is over
    const workload = { callers: 64, keys: 640, ms: 2_000, latencies: false };
    const rounds = await interleaveProcessGroups(names, { processes: 8, tcp: true }, workload);
    const [holdfast, floor, thirdParty] = [rounds(HOLDFAST), rounds(BASELINE), rounds(THIRD_PARTY)];
    return {
      rows: names.map((name) => toRow(name, rounds(name))),
      checks: [
        check("goal", "rate of floor B", computeRatio(pairRates(holdfast), pairRates(floor)), "at least", 0.7),
        check(
          "goal",
          "server CPU a pair of floor B's",
          computeRatio(serverCpuPerPair(holdfast), serverCpuPerPair(floor)),
          "at most",
          1.4,
        ),
        check(
          "goal",
          `rate of ${THIRD_PARTY}`,
          computeRatio(pairRates(holdfast), pairRates(thirdParty)),
          "at least",
          5,
        ),
      ],
    };
  },
};

function serverCpuPerPair(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ serverCpu: micros, pairs }) => micros / pairs);
}

const HOLDFAST_TLS = "holdfast, TLS";

export const tlsMultiProcess: BenchCase = {
  name: "tls",
  title: "TLS against plain TCP, one process with 64 callers",
  about: "Every caller on keys that no other caller wants then. CPU of client and server together.",
  async run() {
    const names = [HOLDFAST, HOLDFAST_TLS];
    const workload = { callers: 64, keys: 640, ms: 700, latencies: false };
    const rounds = await interleaveProcessGroups(names, { processes: 1, tcp: true }, workload);
    const [plain, tls] = [rounds(HOLDFAST), rounds(HOLDFAST_TLS)];
    return {
      rows: names.map((name) => toRow(name, rounds(name))),
      checks: [check("goal", "CPU a pair of plain", computeRatio(cpuPerPair(tls), cpuPerPair(plain)), "at most", 1.5)],
    };
  },
};
