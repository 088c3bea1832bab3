/** Our server over a Unix socket against the floors and live-mutex on the same kind of socket. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { Workload } from "../harness/closed-loop.ts";
import { countLines } from "../harness/frame-counts.ts";
import {
  cpuPerPair,
  grantVariation,
  interleave,
  medianLatencies,
  pairRates,
  starvedCallers,
  toRow,
} from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";

const HOLDFAST = "holdfast";
const HOLDFAST_STRICT = "holdfast, strict order";
const ECHO_BASELINE = "floor A";
const QUEUE_BASELINE = "floor B";
const THIRD_PARTY = "live-mutex";

const UNCONTENDED_LOAD: Workload = { callers: 1, keys: 1, ms: 700, latencies: true };
const CONTENDED_LOAD: Workload = { callers: 64, keys: 1, ms: 700, latencies: true };

export const socketUncontended: BenchCase = {
  name: "socket",
  title: "Our server, one client, uncontended",
  about:
    "One caller in a loop. Floor A answers each of the pair's two frames and does nothing else. Where the kernel places " +
    "the two processes moves a serial figure by more than most products differ.",
  headline: ["pairs/s"],
  reasons: {
    "*": "A pair costs client and server together about 10 us of CPU more than two bare round trips, in which nothing is promised.",
  },
  async run() {
    const names = [HOLDFAST, ECHO_BASELINE, QUEUE_BASELINE, THIRD_PARTY];
    const rounds = await interleave(names, () => UNCONTENDED_LOAD);
    const { up, down } = await countLines(HOLDFAST, { ...UNCONTENDED_LOAD, ms: 300 });
    const [holdfast, floor] = [rounds(HOLDFAST), rounds(ECHO_BASELINE)];
    return {
      rows: names.map((name) => toRow(name, rounds(name))),
      checks: [
        check("gate", "frames to the server a pair", computeSpread([up]), "exactly", 2),
        check("gate", "frames from the server a pair", computeSpread([down]), "exactly", 2),
        check(
          "goal",
          "p50 of floor A",
          computeRatio(medianLatencies(holdfast), medianLatencies(floor)),
          "at most",
          1.15,
        ),
      ],
    };
  },
};

export const socketManyKeys: BenchCase = {
  name: "socket-wide",
  title: "Our server, 64 callers on 10,000 keys",
  about: "64 callers of one process, each on keys that no other caller wants then. Floor B: a bare map of queues.",
  headline: ["pairs/s"],
  reasons: {
    "*":
      "The callers of the process wait for one batch, so that client and server take turns, and the rate is one over the sum " +
      "of their CPU.",
  },
  async run() {
    const names = [HOLDFAST, QUEUE_BASELINE, THIRD_PARTY];
    const rounds = await interleave(names, () => ({ callers: 64, keys: 10_000, ms: 700, latencies: true }));
    const [holdfast, floor, thirdParty] = [rounds(HOLDFAST), rounds(QUEUE_BASELINE), rounds(THIRD_PARTY)];
    const cpuOf = {
      "CPU of floor B": computeRatio(cpuPerPair(holdfast), cpuPerPair(floor)),
      [`CPU of ${THIRD_PARTY}`]: computeRatio(cpuPerPair(holdfast), cpuPerPair(thirdParty)),
    };
    return {
      rows: names.map((name) => toRow(name, rounds(name), name === HOLDFAST ? cpuOf : {})),
      checks: [
        check("goal", "rate of floor B", computeRatio(pairRates(holdfast), pairRates(floor)), "at least", 0.65),
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

export const socketContended: BenchCase = {
  name: "socket-64",
  title: "Our server, 64 callers on one key",
  about:
    "64 callers of one process: with local hand-off, and in strict order. " +
    "Floor A here: one caller; its rate is that of its round trips, two a pair.",
  headline: ["pairs/s"],
  reasons: {
    "*":
      "In strict order each request has a claim of its own; where the kernel places the two processes decides, and Holdfast's " +
      "frames also carry ids, tokens and leases.",
  },
  async run() {
    const names = [HOLDFAST, HOLDFAST_STRICT, THIRD_PARTY, ECHO_BASELINE];
    const rounds = await interleave(names, (name) => (name === ECHO_BASELINE ? UNCONTENDED_LOAD : CONTENDED_LOAD));
    const [holdfast, strict, thirdParty] = [rounds(HOLDFAST), rounds(HOLDFAST_STRICT), rounds(THIRD_PARTY)];
    const roundTripRates = pairRates(rounds(ECHO_BASELINE)).map((pairs) => 2 * pairs);
    return {
      rows: names.map((name) => toRow(name, rounds(name))),
      checks: [
        check(
          "goal",
          `rate of ${THIRD_PARTY}`,
          computeRatio(pairRates(holdfast), pairRates(thirdParty)),
          "at least",
          15,
        ),
        check("gate", "callers that got nothing", computeSpread(starvedCallers(holdfast)), "exactly", 0),
        check("gate", "spread of grants per caller", computeSpread(grantVariation(holdfast)), "at most", 0.05),
        check("gate", "strict order: callers that got nothing", computeSpread(starvedCallers(strict)), "exactly", 0),
        check(
          "gate",
          "strict order: spread of grants per caller",
          computeSpread(grantVariation(strict)),
          "at most",
          0.05,
        ),
        check(
          "goal",
          `strict order: rate of ${THIRD_PARTY}`,
          computeRatio(pairRates(strict), pairRates(thirdParty)),
          "at least",
          1,
        ),
        check(
          "goal",
          "strict order: round trips of floor A",
          computeRatio(pairRates(strict), roundTripRates),
          "at least",
          0.7,
        ),
      ],
    };
  },
};
