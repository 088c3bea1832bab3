/** What a client keeps when nothing is locked. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { withImplementation } from "../harness/rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeSpread } from "../harness/stats.ts";

const HOLDFAST = "holdfast, memory";
const REPETITIONS = 3;
const KEYS = 1_000_000;
const CYCLES = 1_000_000;

export const memoryUse: BenchCase = {
  name: "memory-use",
  title: "What stays behind, in process",
  about:
    "Heap left after a million different keys were locked once, and after a million cycles on one key; after a full " +
    "collection, a fresh process each time. Half a megabyte in all counts as nothing.",
  async run() {
    const idle = await repeatCall("idleKeys", KEYS);
    const cycles = await repeatCall("manyCycles", CYCLES);
    return {
      rows: [{ name: HOLDFAST, figures: { "bytes a key": idle, "bytes a cycle": cycles } }],
      checks: [
        check("gate", "bytes of heap a key that is idle again", idle, "at most", 0.5),
        check("gate", "bytes of heap a cycle", cycles, "at most", 0.5),
      ],
    };
  },
};

async function repeatCall(call: string, argument: number): Promise<Spread> {
  const bytes: number[] = [];
  for (let time = 0; time < REPETITIONS; time++) {
    bytes.push(
      await withImplementation(HOLDFAST, ({ client }) => client.call<number>(call, argument), ["--expose-gc"]),
    );
  }
  return computeSpread(bytes);
}
