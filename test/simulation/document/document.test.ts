import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { runDocumentSeed } from "./workload.ts";

const SEEDS = process.env.HOLDFAST_LONG === "1" ? 3_000 : 30;
const FIRST_SEED = Number(process.env.HOLDFAST_DOCUMENT_SEED ?? 1);

describe("simulated processes that keep locks in documents, under faults", () => {
  test(`in ${SEEDS} seeds of conflicts, lost answers, late writes, stale reads and stopped processes no two holders overlap, tokens rise, all are served`, async () => {
    let grants = 0;
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) grants += await runDocumentSeed(seed);
    assert.ok(grants > 20 * SEEDS, `${grants} grants in ${SEEDS} seeds`);
  }, 3_600_000);
});
