/** How long a lock is nobody's on its way from one process to the next. */

import type { BenchCase } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { Crew } from "../harness/crews.ts";
import { withCrews } from "../harness/crews.ts";
import { quiet } from "../harness/machine.ts";
import { ROUNDS, WARM_UP } from "../harness/rounds.ts";
import { quantile, ratioOf, spreadOf } from "../harness/stats.ts";
import type { Turn } from "../harness/turns.ts";

const OURS = "holdfast";
const FLOOR = "floor B";
const RIVAL = "live-mutex";
const TIMES = 150;

export const handOff: BenchCase = {
  name: "hand-off",
  title: "Hand-off from one process to the next, on TCP",
  about:
    "Two processes take turns on one key, holding it for a millisecond each; the time from one's call of release to the " +
    "other's grant, which the machine's monotonic clock tells. Whoever is told sleeps until then, so a message costs a " +
    "wake-up; floor B's hand-off is two such messages and nothing else, of which the goal takes half for one message.",
  async run() {
    const names = [OURS, FLOOR, RIVAL];
    const took = new Map<string, { p50: number[]; p99: number[] }>(names.map((name) => [name, { p50: [], p99: [] }]));
    await withCrews(names, { processes: 2, tcp: true }, async (crews) => {
      for (let round = -WARM_UP; round < ROUNDS; round++) {
        for (const crew of crews) {
          await quiet();
          const times = await gaps(crew);
          if (round < 0) continue;
          took.get(crew.name)?.p50.push(quantile(times, 0.5));
          took.get(crew.name)?.p99.push(quantile(times, 0.99));
        }
      }
    });
    const half = (name: string): readonly number[] => took.get(name)?.p50 ?? [];
    const three = half(FLOOR).map((two) => (3 / 2) * two);
    return {
      rows: [...took].map(([contestant, { p50, p99 }]) => ({
        contestant,
        figures: { "p50 us": spreadOf(p50), "p99 us": spreadOf(p99) },
      })),
      checks: [
        check("goal", "p50 of three messages", ratioOf(half(OURS), three), "at most", 1.3),
        check("goal", `p50 of ${RIVAL}`, ratioOf(half(OURS), half(RIVAL)), "at most", 1),
      ],
    };
  },
};

/** From the release of each turn to the grant of the next one. */
async function gaps({ clients }: Crew): Promise<number[]> {
  const both = await Promise.all(
    clients.map((client) => client.call<Turn[]>("paced", { times: TIMES, key: "bench:paced" })),
  );
  const turns = both.flatMap((mine, who) => mine.map((turn) => ({ ...turn, who })));
  turns.sort((a, b) => a.granted - b.granted);
  return turns.flatMap((turn, at) => {
    const before = turns[at - 1];
    return before === undefined || before.who === turn.who ? [] : [turn.granted - before.released];
  });
}
