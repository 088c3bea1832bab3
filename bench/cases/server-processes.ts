/** Our server over TCP against live-mutex, several client processes that want one lock. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { grantVariation, starvedCallers } from "../harness/rounds.ts";
import { measureOnServers } from "../harness/server-rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column } from "../harness/store-rounds.ts";
import { grantRates, storeRow } from "../harness/store-rounds.ts";

const HOLDFAST = "holdfast";
const HOLDFAST_STRICT = "holdfast, strict order";
const QUEUE_BASELINE = "floor B";
const THIRD_PARTY = "live-mutex";
const COLUMNS: readonly Column[] = ["rate", "p50", "p99", "longest", "spread", "starved", "clientCpu", "serverCpu"];

export const serverProcesses: BenchCase = {
  name: "server-processes",
  title: "Our server on TCP, 4 processes with 8 callers each on one key",
  about:
    "Nothing is done under the lock; each caller asks again at once. p50 and p99 are of the wait for a grant. With local " +
    "hand-off, and in strict order. Floor B: a bare map of queues behind the same frames, in strict order, too.",
  headline: ["grants/s"],
  reasons: {
    "*":
      "In strict order each change of the process is a round trip of its own; Holdfast's frames also carry ids, tokens and leases, which " +
      "live-mutex does not have.",
  },
  async run() {
    const names = [HOLDFAST, HOLDFAST_STRICT, QUEUE_BASELINE, THIRD_PARTY];
    const load = { callers: 8, keys: 1, timed: "wait" } as const;
    const rounds = await measureOnServers(names, { processes: 4, load, ms: 500, fair: true });
    const rateOf = (name: string, other: string) => computeRatio(grantRates(rounds(name)), grantRates(rounds(other)));
    return {
      rows: names.map((name) => storeRow(name, rounds, COLUMNS)),
      checks: [
        check("goal", `rate of ${THIRD_PARTY}`, rateOf(HOLDFAST, THIRD_PARTY), "at least", 5),
        check("goal", `strict order: rate of ${THIRD_PARTY}`, rateOf(HOLDFAST_STRICT, THIRD_PARTY), "at least", 1),
        ...[HOLDFAST, HOLDFAST_STRICT].flatMap((name) => [
          check("gate", `${name}: callers that got nothing`, computeSpread(starvedCallers(rounds(name))), "exactly", 0),
          check(
            "gate",
            `${name}: spread of grants per caller`,
            computeSpread(grantVariation(rounds(name))),
            "at most",
            0.05,
          ),
        ]),
      ],
    };
  },
};
