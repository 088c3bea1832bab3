/** Random sequences with subscribe, cut and resubscribe on a real Redis, compared with the model of its queues step by step. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ShiftedRedis } from "../support/services/shifted-redis.ts";
import { startShiftedRedis, whyNoShift } from "../support/services/shifted-redis.ts";
import { ModelRuns } from "./model-run.ts";

const isLong = process.env.HOLDFAST_LONG === "1";
const STEPS = isLong ? 5_000_000 : 20_000;
/** Commands of one seed. */
const EACH = 250;
/** Where a long run says how far it is, to go on from there. */
const FOLDER = "node_modules/.cache/holdfast";
const PROGRESS = `${FOLDER}/unreachable-model.json`;

const why = whyNoShift();

describe.skipIf(why !== null)(`unreachable waiters${why === null ? "" : ` (skipped: ${why})`}`, () => {
  let server: ShiftedRedis;
  let runs: ModelRuns;
  beforeAll(async () => {
    server = await startShiftedRedis();
    runs = new ModelRuns(server);
  }, 180_000);
  afterAll(async () => {
    runs?.close();
    server?.shift(0);
    await server?.stop();
  });

  test(`${STEPS} random commands are answered, published and kept as the model says`, {
    timeout: isLong ? 6 * 3_600_000 : 180_000,
  }, async () => {
    let seed = isLong ? firstSeed() : 1;
    for (; seed * EACH <= STEPS; seed++) {
      await runs.run(seed, EACH);
      if (isLong && seed % 40 === 0) noteSeed(seed + 1);
    }
    if (isLong) noteSeed(1);
    const { seen } = runs;
    console.log(`figure: unreachable waiters against the model: ${JSON.stringify(seen)}`);
    for (const count of [seen.grants, seen.passedOver, seen.grantedUnheard, seen.wentOn, seen.dropped]) {
      expect(count).toBeGreaterThan(20);
    }
  });
});

function firstSeed(): number {
  try {
    return Number((JSON.parse(readFileSync(PROGRESS, "utf8")) as { readonly seed: number }).seed);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 1;
    throw error;
  }
}

function noteSeed(seed: number): void {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(PROGRESS, JSON.stringify({ seed }));
}
