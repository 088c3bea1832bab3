/** How long a lock takes from its release in one process to its grant in the next. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { ProcessGroup } from "../harness/process-groups.ts";
import { withProcessGroups } from "../harness/process-groups.ts";
import { WARM_UP } from "../harness/rounds.ts";
import { runRounds } from "../harness/run-rounds.ts";
import { computeRatio, computeSpread, quantile } from "../harness/stats.ts";
import type { Turn } from "../harness/workloads.ts";

const HOLDFAST = "holdfast";
const BASELINE = "floor B";
const THIRD_PARTY = "live-mutex";
const TURNS = 150;

export const handOff: BenchCase = {
  name: "hand-off",
  title: "Hand-off from one process to the next, on TCP",
  about:
    "Two processes take turns on one key, holding it for a millisecond each; the time from one's call of release to the " +
    "other's grant, which the machine's monotonic clock tells. The process that receives a message sleeps until then, so each costs a " +
    "wake-up; floor B's hand-off is two such messages and nothing else, of which the goal takes half for one message.",
  headline: ["p50 us"],
  reasons: {
    "*": "Some 60 us of code before the write in one process and 50 after the read in the other, which has just been woken.",
  },
  async run() {
    const names = [HOLDFAST, BASELINE, THIRD_PARTY];
    const gapsByName = new Map<string, { p50: number[]; p99: number[] }>(
      names.map((name) => [name, { p50: [], p99: [] }]),
    );
    await withProcessGroups(names, { processes: 2, tcp: true }, (groups) =>
      runRounds(groups, { warmUp: WARM_UP }, async (group, isCounted) => {
        const times = await measureGaps(group);
        if (!isCounted) return;
        gapsByName.get(group.name)?.p50.push(quantile(times, 0.5));
        gapsByName.get(group.name)?.p99.push(quantile(times, 0.99));
      }),
    );
    const mediansOf = (name: string): readonly number[] => gapsByName.get(name)?.p50 ?? [];
    const three = mediansOf(BASELINE).map((two) => (3 / 2) * two);
    return {
      rows: [...gapsByName].map(([name, { p50, p99 }]) => ({
        name,
        figures: { "p50 us": computeSpread(p50), "p99 us": computeSpread(p99) },
      })),
      checks: [
        check("goal", "p50 of three messages", computeRatio(mediansOf(HOLDFAST), three), "at most", 1.3),
        check("goal", `p50 of ${THIRD_PARTY}`, computeRatio(mediansOf(HOLDFAST), mediansOf(THIRD_PARTY)), "at most", 1),
      ],
    };
  },
};

/** From the release of each turn to the grant of the next one. */
async function measureGaps({ clients }: ProcessGroup): Promise<number[]> {
  const turnsByClient = await Promise.all(
    clients.map((client) => client.call<Turn[]>("paced", { times: TURNS, key: "bench:paced" })),
  );
  const turns = turnsByClient.flatMap((clientTurns, clientIndex) =>
    clientTurns.map((turn) => ({ ...turn, clientIndex })),
  );
  turns.sort((a, b) => a.granted - b.granted);
  return turns.flatMap((turn, index) => {
    const before = turns[index - 1];
    return before === undefined || before.clientIndex === turn.clientIndex ? [] : [turn.granted - before.releasedAt];
  });
}
