import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { runQuorumSeed } from "./workload.ts";

const SEEDS = process.env.HOLDFAST_LONG === "1" ? 3_000 : 15;
const FIRST_SEED = Number(process.env.HOLDFAST_QUORUM_SEED ?? 1);

/** Seeds that found faults. */
const FAULTS = [38, 83, 106, 136, 142];

describe("a simulated majority under faults", () => {
  test.for(FAULTS)("seed %i passes", async (seed) => {
    assert.ok((await runQuorumSeed(seed)) > 0);
  });

  test(`in ${SEEDS} seeds of loss, delay, partition and forgetting no two holders overlap, tokens rise, all are served`, async () => {
    let grants = 0;
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) grants += await runQuorumSeed(seed);
    assert.ok(grants > 20 * SEEDS, `${grants} grants in ${SEEDS} seeds`);
  }, 3_600_000);
});
