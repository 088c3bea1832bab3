/** Our server over a Unix socket against the floors and live-mutex on the same kind of socket. */

import { Child } from "../harness/calls.ts";
import type { BenchCase } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { Measured } from "../harness/client.child.ts";
import { relay } from "../harness/relay.ts";
import {
  clientProgram,
  cpus,
  halfTook,
  interleave,
  rates,
  rowOf,
  starved,
  unevenness,
  withRunner,
} from "../harness/rounds.ts";
import { ratioOf, spreadOf } from "../harness/stats.ts";
import type { Workload } from "../harness/workload.ts";

const OURS = "holdfast";
const STRICT = "holdfast, handoffs 1";
const FLOOR_A = "floor A";
const FLOOR_B = "floor B";
const RIVAL = "live-mutex";

const ALONE: Workload = { callers: 1, keys: 1, ms: 700, latencies: true };
const CROWD: Workload = { callers: 64, keys: 1, ms: 700, latencies: true };

export const socketAlone: BenchCase = {
  name: "socket",
  title: "Our server, one client, uncontended",
  about:
    "One caller in a loop. Floor A answers each of the pair's two frames and does nothing else. Where the kernel places " +
    "the two processes moves a serial figure by more than most products differ.",
  async run() {
    const names = [OURS, FLOOR_A, FLOOR_B, RIVAL];
    const rounds = await interleave(names, () => ALONE);
    const { up, down } = await frames();
    const [ours, floor] = [rounds(OURS), rounds(FLOOR_A)];
    return {
      rows: names.map((name) => rowOf(name, rounds(name))),
      checks: [
        check("gate", "frames to the server a pair", spreadOf([up]), "exactly", 2),
        check("gate", "frames from the server a pair", spreadOf([down]), "exactly", 2),
        check("goal", "p50 of floor A", ratioOf(halfTook(ours), halfTook(floor)), "at most", 1.15),
      ],
    };
  },
};

export const socketWide: BenchCase = {
  name: "socket-wide",
  title: "Our server, 64 callers on 10,000 keys",
  about: "64 callers of one process, each on keys that nobody else wants just then. Floor B: a bare map of queues.",
  async run() {
    const names = [OURS, FLOOR_B, RIVAL];
    const rounds = await interleave(names, () => ({ callers: 64, keys: 10_000, ms: 700, latencies: true }));
    const [ours, floor, rival] = [rounds(OURS), rounds(FLOOR_B), rounds(RIVAL)];
    const cpuOf = {
      "CPU of floor B": ratioOf(cpus(ours), cpus(floor)),
      [`CPU of ${RIVAL}`]: ratioOf(cpus(ours), cpus(rival)),
    };
    return {
      rows: names.map((name) => rowOf(name, rounds(name), name === OURS ? cpuOf : {})),
      checks: [
        check("goal", "rate of floor B", ratioOf(rates(ours), rates(floor)), "at least", 0.65),
        check("goal", `rate of ${RIVAL}`, ratioOf(rates(ours), rates(rival)), "at least", 5),
      ],
    };
  },
};

export const socketCrowd: BenchCase = {
  name: "socket-64",
  title: "Our server, 64 callers on one key",
  about:
    "64 callers of one process: with local hand-off, and in strict order (handoffs 1), where each grant costs a round trip. " +
    "Floor A here: one caller; its rate is that of its round trips, two a pair.",
  async run() {
    const names = [OURS, STRICT, RIVAL, FLOOR_A];
    const rounds = await interleave(names, (name) => (name === FLOOR_A ? ALONE : CROWD));
    const [ours, strict, rival] = [rounds(OURS), rounds(STRICT), rounds(RIVAL)];
    const trips = rates(rounds(FLOOR_A)).map((pairs) => 2 * pairs);
    return {
      rows: names.map((name) => rowOf(name, rounds(name))),
      checks: [
        check("goal", "rate of our own strict order", ratioOf(rates(ours), rates(strict)), "at least", 15),
        check("gate", "callers that got nothing", spreadOf(starved(ours)), "exactly", 0),
        check("gate", "spread of grants per caller", spreadOf(unevenness(ours)), "at most", 0.05),
        check("gate", "strict order: callers that got nothing", spreadOf(starved(strict)), "exactly", 0),
        check("gate", "strict order: spread of grants per caller", spreadOf(unevenness(strict)), "at most", 0.05),
        check("goal", `strict order: rate of ${RIVAL}`, ratioOf(rates(strict), rates(rival)), "at least", 1),
        check("goal", "strict order: round trips of floor A", ratioOf(rates(strict), trips), "at least", 0.7),
      ],
    };
  },
};

/** Lines a pair each way, the two hellos left out. */
function frames(): Promise<{ readonly up: number; readonly down: number }> {
  return withRunner(OURS, async ({ socket }) => {
    const between = await relay(`${socket}.relay`, socket);
    const client = new Child(clientProgram, [OURS, `${socket}.relay`]);
    try {
      const { pairs } = await client.call<Measured>("perform", { ...ALONE, ms: 300 });
      const { up, down } = between.counts();
      return { up: (up - 1) / pairs, down: (down - 1) / pairs };
    } finally {
      await client.end();
      between.close();
    }
  });
}
