/** Our server over TCP with eight client processes. */

import type { BenchCase } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import { interleaveCrews } from "../harness/crews.ts";
import type { Round } from "../harness/rounds.ts";
import { cpus, rates, rowOf } from "../harness/rounds.ts";
import { ratioOf } from "../harness/stats.ts";

const OURS = "holdfast";
const FLOOR = "floor B";
const RIVAL = "live-mutex";
/** What our client and our frames cost before a server does anything for them. */
const BARE = "bare queue, our frames";

export const processes: BenchCase = {
  name: "processes",
  title: "Our server on TCP, 8 processes with 64 callers each",
  about: "Every caller on keys that nobody else wants just then. Floor B: a bare map of queues behind the same frames.",
  async run() {
    const names = [OURS, FLOOR, BARE, RIVAL];
    // a fifth of a core each: in a shorter round V8 has hardly grown its young generation back when it is over
    const workload = { callers: 64, keys: 640, ms: 2_000, latencies: false };
    const rounds = await interleaveCrews(names, { processes: 8, tcp: true }, workload);
    const [ours, floor, rival] = [rounds(OURS), rounds(FLOOR), rounds(RIVAL)];
    return {
      rows: names.map((name) => rowOf(name, rounds(name))),
      checks: [
        check("goal", "rate of floor B", ratioOf(rates(ours), rates(floor)), "at least", 0.7),
        check("goal", "server CPU a pair of floor B's", ratioOf(serverCpu(ours), serverCpu(floor)), "at most", 1.4),
        check("goal", `rate of ${RIVAL}`, ratioOf(rates(ours), rates(rival)), "at least", 5),
      ],
    };
  },
};

function serverCpu(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ serverCpu: micros, pairs }) => micros / pairs);
}

const SECURED = "holdfast, TLS";

export const secured: BenchCase = {
  name: "tls",
  title: "TLS against plain TCP, one process with 64 callers",
  about: "Every caller on keys that nobody else wants just then. CPU of client and server together.",
  async run() {
    const names = [OURS, SECURED];
    const workload = { callers: 64, keys: 640, ms: 700, latencies: false };
    const rounds = await interleaveCrews(names, { processes: 1, tcp: true }, workload);
    const [plain, tls] = [rounds(OURS), rounds(SECURED)];
    return {
      rows: names.map((name) => rowOf(name, rounds(name))),
      checks: [check("goal", "CPU a pair of plain", ratioOf(cpus(tls), cpus(plain)), "at most", 1.5)],
    };
  },
};
