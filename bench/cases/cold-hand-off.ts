/**
 * A lock on Redis that two processes pass to each other, a few times each: both sleep in between, and neither is warm.
 */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { HAND_OFFS, handOffRows, measureHandOffs } from "../harness/hand-offs.ts";
import { REDIS } from "../harness/redis-rounds.ts";
import { computeRatio } from "../harness/stats.ts";
import { DIRECT_HAND_OFF, HOLDFAST, HOLDFAST_STRICT, SIMPLE_REDIS_MUTEX } from "../implementations/redis.ts";

const ROUNDS = 15;

export const coldHandOff: BenchCase = {
  name: "cold-hand-off",
  title: "Redis, hand-off between two processes that are mostly idle",
  about:
    `From A's call of release to B's grant, on the machine's monotonic clock; B has waited for 5 to 15 ms, at random. ${HAND_OFFS} in a ` +
    "round at most, and one round before those that count. The floor, the plain direct hand-off, has no lease of a waiter.",
  headline: ["p50 us"],
  reasons: {
    "*":
      "The grant is published by the script of the release, which does more than to delete a key, and both processes are woken " +
      "with code that is not compiled yet.",
  },
  async run() {
    const names = [HOLDFAST, HOLDFAST_STRICT, DIRECT_HAND_OFF, SIMPLE_REDIS_MUTEX];
    const rounds = await measureHandOffs(REDIS, names, ROUNDS);
    const p50Of = (name: string): readonly number[] => rounds.get(name)?.p50 ?? [];
    const ratio = (name: string, base: string) => computeRatio(p50Of(name), p50Of(base));
    return {
      rows: handOffRows(rounds),
      checks: [
        check("goal", `p50 of ${SIMPLE_REDIS_MUTEX}`, ratio(HOLDFAST, SIMPLE_REDIS_MUTEX), "at most", 0.6),
        check(
          "goal",
          `strict order: p50 of ${SIMPLE_REDIS_MUTEX}`,
          ratio(HOLDFAST_STRICT, SIMPLE_REDIS_MUTEX),
          "at most",
          0.6,
        ),
        check("goal", `p50 of ${DIRECT_HAND_OFF}`, ratio(HOLDFAST, DIRECT_HAND_OFF), "at most", 1.3),
        check("goal", "p50 of strict order", ratio(HOLDFAST, HOLDFAST_STRICT), "at most", 1.05),
      ],
    };
  },
};
