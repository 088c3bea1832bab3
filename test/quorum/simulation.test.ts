import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { play } from "./play.ts";

const SEEDS = process.env.HOLDFAST_LONG === "1" ? 3_000 : 15;
const FROM = Number(process.env.HOLDFAST_QUORUM_SEED ?? 1);

/** In which something was wrong once. */
const FAULTS = [38, 83, 106, 136, 142];

describe("a majority in trouble, simulated", () => {
  test.for(FAULTS)("seed %i is well", async (seed) => {
    await play(seed);
  });

  test(`in ${SEEDS} seeds of loss, delay, partition and forgetting nobody overlaps, tokens rise, all are served`, async () => {
    let grants = 0;
    for (let seed = FROM; seed < FROM + SEEDS; seed++) grants += await play(seed);
    assert.ok(grants > 20 * SEEDS, `${grants} grants in ${SEEDS} seeds`);
  }, 3_600_000);
});
