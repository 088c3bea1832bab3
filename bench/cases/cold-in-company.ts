/** A free lock on Redis in a process that does other things: the caches of the processor are not the lock's own. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import type { Measured } from "../harness/client.child.ts";
import type { CompanyWorkload } from "../harness/company.child.ts";
import { withBenchRedis } from "../harness/redis.ts";
import type { Round } from "../harness/rounds.ts";
import { medianLatencies, toRow } from "../harness/rounds.ts";
import { runRounds } from "../harness/run-rounds.ts";
import { computeRatio } from "../harness/stats.ts";
import { BY_HAND, HOLDFAST, HOLDFAST_STRICT } from "../implementations/redis.ts";

const NAMES = [HOLDFAST, HOLDFAST_STRICT, BY_HAND];
const ROUNDS = 15;
const SLICE_MS = 600;
/** Before each slice, so that an implementation is idle for more than four seconds between its own. */
const PAUSE_MS = 1_000;
const PROGRAM = new URL("../harness/company.child.js", import.meta.url);

export const coldInCompany: BenchCase = {
  name: "cold-in-company",
  title: "Redis, a free lock now and then",
  about:
    `All in one process, each with connections of its own: ${SLICE_MS / 1_000} s each in turn, with a pause of ${PAUSE_MS / 1_000} s before each. ` +
    "One caller, one key, in a loop; a pair is timed whole. By hand is `SET NX PX` and a script that compares and deletes.",
  headline: ["p50 us"],
  reasons: {
    "*":
      "A pair runs more code than by hand, in the client and in the scripts, and after a pause that code has to be fetched " +
      "and partly compiled again.",
  },
  async run() {
    const rounds = new Map<string, Round[]>(NAMES.map((name) => [name, []]));
    await withBenchRedis(async ({ address }) => {
      const company = new ChildProcessRpc(PROGRAM, [address, ...NAMES]);
      try {
        await runRounds(NAMES, { counted: ROUNDS }, async (name, isCounted) => {
          await delay(PAUSE_MS);
          const workload: CompanyWorkload = {
            name,
            callers: 1,
            keys: 1,
            ms: SLICE_MS,
            latencies: true,
            prefix: `${name}:`,
          };
          const measured = await company.call<Measured>("perform", workload);
          if (isCounted) rounds.get(name)?.push({ ...measured, serverCpu: 0 });
        });
      } finally {
        await company.end();
      }
    });
    const roundsOf = (name: string): readonly Round[] => rounds.get(name) ?? [];
    const p50Of = (name: string): readonly number[] => medianLatencies(roundsOf(name));
    return {
      rows: NAMES.map((name) => toRow(name, roundsOf(name))),
      checks: [
        check("goal", `p50 of ${BY_HAND}`, computeRatio(p50Of(HOLDFAST), p50Of(BY_HAND)), "at most", 1.4),
        check(
          "goal",
          `strict order: p50 of ${BY_HAND}`,
          computeRatio(p50Of(HOLDFAST_STRICT), p50Of(BY_HAND)),
          "at most",
          1.4,
        ),
        check("goal", "p50 of strict order", computeRatio(p50Of(HOLDFAST), p50Of(HOLDFAST_STRICT)), "at most", 1.05),
      ],
    };
  },
};
