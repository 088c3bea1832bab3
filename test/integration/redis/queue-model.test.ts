/** Random sequences with subscribe, cut and resubscribe on a real Redis, compared with the model of its queues step by step. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { QueueModelRunner } from "./queue-model-runner.ts";

const isLong = process.env.HOLDFAST_LONG === "1";
const STEPS = isLong ? 5_000_000 : 20_000;
/** Commands of one seed. */
const STEPS_PER_SEED = 250;
/** Where a long run reports its progress, to continue from there. */
const FOLDER = "node_modules/.cache/holdfast";
const PROGRESS_FILE = `${FOLDER}/unreachable-model.json`;

const unavailableReason = shiftedClockUnavailableReason();

describe.skipIf(unavailableReason !== null)(
  `unreachable waiters${unavailableReason === null ? "" : ` (skipped: ${unavailableReason})`}`,
  () => {
    let server: ShiftedClockRedis;
    let runs: QueueModelRunner;
    beforeAll(async () => {
      server = await startShiftedClockRedis();
      runs = new QueueModelRunner(server);
    }, 180_000);
    afterAll(async () => {
      runs?.close();
      server?.shift(0);
      await server?.stop();
    });

    test(`${STEPS} random commands are answered, published and stored as the model predicts`, {
      timeout: isLong ? 6 * 3_600_000 : 180_000,
    }, async () => {
      let seed = isLong ? firstSeed() : 1;
      for (; seed * STEPS_PER_SEED <= STEPS; seed++) {
        await runs.run(seed, STEPS_PER_SEED);
        if (isLong && seed % 40 === 0) saveSeed(seed + 1);
      }
      if (isLong) saveSeed(1);
      const { statistics } = runs;
      console.log(`figure: unreachable waiters against the model: ${JSON.stringify(statistics)}`);
      for (const count of [
        statistics.grants,
        statistics.skipped,
        statistics.grantedUnreachable,
        statistics.movedOn,
        statistics.dropped,
      ]) {
        expect(count).toBeGreaterThan(20);
      }
    });
  },
);

function firstSeed(): number {
  try {
    return Number((JSON.parse(readFileSync(PROGRESS_FILE, "utf8")) as { readonly seed: number }).seed);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 1;
    throw error;
  }
}

function saveSeed(seed: number): void {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(PROGRESS_FILE, JSON.stringify({ seed }));
}
