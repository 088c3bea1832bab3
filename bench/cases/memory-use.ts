/** What a client keeps when nothing is locked. */

import type { BenchCase } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import { withRunner } from "../harness/rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { spreadOf } from "../harness/stats.ts";

const OURS = "holdfast, memory";
const TIMES = 3;
const KEYS = 1_000_000;
const CYCLES = 1_000_000;

export const memoryUse: BenchCase = {
  name: "memory-use",
  title: "What stays behind, in process",
  about:
    "Heap left after a million different keys were locked once, and after a million cycles on one key; after a full " +
    "collection, a fresh process each time. Half a megabyte in all counts as nothing.",
  async run() {
    const idle = await repeated("idleKeys", KEYS);
    const cycles = await repeated("manyCycles", CYCLES);
    return {
      rows: [{ contestant: OURS, figures: { "bytes a key": idle, "bytes a cycle": cycles } }],
      checks: [
        check("gate", "bytes of heap a key that is idle again", idle, "at most", 0.5),
        check("gate", "bytes of heap a cycle", cycles, "at most", 0.5),
      ],
    };
  },
};

async function repeated(call: string, argument: number): Promise<Spread> {
  const bytes: number[] = [];
  for (let time = 0; time < TIMES; time++) {
    bytes.push(await withRunner(OURS, ({ client }) => client.call<number>(call, argument), ["--expose-gc"]));
  }
  return spreadOf(bytes);
}
