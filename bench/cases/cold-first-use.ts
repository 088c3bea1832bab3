/** The first locks of a process on Redis, while V8 still interprets and compiles most of the code. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import type { Measured } from "../harness/client.child.ts";
import type { Workload } from "../harness/closed-loop.ts";
import { withBenchRedis } from "../harness/redis.ts";
import type { Round } from "../harness/rounds.ts";
import { CLIENT_PROGRAM, pairRates, toRow } from "../harness/rounds.ts";
import { runRounds } from "../harness/run-rounds.ts";
import { computeRatio } from "../harness/stats.ts";
import { BY_HAND, HOLDFAST, HOLDFAST_STRICT } from "../implementations/redis.ts";

const NAMES = [HOLDFAST, HOLDFAST_STRICT, BY_HAND];
const ROUNDS = 15;
const FIRST_MS = 600;

export const coldFirstUse: BenchCase = {
  name: "cold-first-use",
  title: "Redis, a free lock in a new process",
  about:
    `One caller, one key, in a loop, for the first ${FIRST_MS / 1_000} s of each process, imports not counted. Holdfast connects at its first ` +
    "acquire, which counts; by hand, which is `SET NX PX` and a script that compares and deletes, is connected before.",
  headline: ["pairs/s"],
  reasons: {
    "*":
      "Holdfast opens a second connection and asks the server for its settings before the first lock; after that a pair runs " +
      "more code than by hand, of which nothing is compiled yet.",
  },
  async run() {
    const rounds = new Map<string, Round[]>(NAMES.map((name) => [name, []]));
    await withBenchRedis(({ address }) =>
      runRounds(NAMES, { counted: ROUNDS }, async (name, isCounted) => {
        const client = new ChildProcessRpc(CLIENT_PROGRAM, [name, address]);
        try {
          await client.call("ready");
          const workload: Workload = { callers: 1, keys: 1, ms: FIRST_MS, latencies: true, prefix: `${name}:` };
          const measured = await client.call<Measured>("perform", workload);
          // processes are new in every round: the first one only loads the scripts into Redis
          if (isCounted) rounds.get(name)?.push({ ...measured, serverCpu: 0 });
        } finally {
          await client.end();
        }
      }),
    );
    const roundsOf = (name: string): readonly Round[] => rounds.get(name) ?? [];
    const ratesOf = (name: string): readonly number[] => pairRates(roundsOf(name));
    return {
      rows: NAMES.map((name) => toRow(name, roundsOf(name))),
      checks: [
        check("goal", `rate of ${BY_HAND}`, computeRatio(ratesOf(HOLDFAST), ratesOf(BY_HAND)), "at least", 0.5),
        check(
          "goal",
          `strict order: rate of ${BY_HAND}`,
          computeRatio(ratesOf(HOLDFAST_STRICT), ratesOf(BY_HAND)),
          "at least",
          0.5,
        ),
        check(
          "goal",
          "rate of strict order",
          computeRatio(ratesOf(HOLDFAST), ratesOf(HOLDFAST_STRICT)),
          "at least",
          0.95,
        ),
      ],
    };
  },
};
