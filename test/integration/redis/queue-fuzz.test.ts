/** Random commands of several processes on a real Redis; queue-fuzz.ts describes the checks. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import type { RunKind } from "./queue-fuzz.ts";
import { QueueFuzzer } from "./queue-fuzz.ts";

const isLong = process.env.HOLDFAST_LONG === "1";
const { HOLDFAST_SEED, HOLDFAST_SEEDS } = process.env;
const FIRST_SEED = Number(HOLDFAST_SEED ?? 1);
/** Faulty ones that have found faults. */
const KNOWN_SEEDS = HOLDFAST_SEED === undefined ? [136, 752, 1052, 1100, 1108, 1682, 1732] : [];
const timeout = isLong ? 6 * 3_600_000 : 180_000;
const unavailableReason = shiftedClockUnavailableReason();

describe.skipIf(unavailableReason !== null)(
  `random commands${unavailableReason === null ? "" : ` (skipped: ${unavailableReason})`}`,
  () => {
    let server: ShiftedClockRedis;
    let fuzzer: QueueFuzzer;
    beforeAll(async () => {
      server = await startShiftedClockRedis();
      fuzzer = new QueueFuzzer(server);
    }, 180_000);
    afterAll(async () => {
      fuzzer?.close();
      server?.shift(0);
      await server?.stop();
    });

    test("are answered, published and stored as the model predicts", { timeout }, async () => {
      const { modelStatistics } = fuzzer;
      await run("predicted", countSeeds(80, 20_000), 250, modelStatistics, 20);
    });

    test("of any kind, with faults, leave the queues consistent", { timeout }, async () => {
      for (const seed of KNOWN_SEEDS) await fuzzer.run("faulty", seed, 150);
      await run("faulty", countSeeds(30, 2_000), 150, fuzzer.statistics, 5);
    });

    async function run(
      kind: RunKind,
      seeds: number,
      steps: number,
      statistics: object,
      atLeast: number,
    ): Promise<void> {
      for (let seed = FIRST_SEED; seed < FIRST_SEED + seeds; seed++) await fuzzer.run(kind, seed, steps);
      console.log(`figure: ${seeds} ${kind} seeds from ${FIRST_SEED} on: ${JSON.stringify(statistics)}`);
      if (seeds > 1) for (const count of Object.values(statistics)) expect(count).toBeGreaterThan(atLeast);
    }
  },
);

function countSeeds(usual: number, long: number): number {
  return Number(HOLDFAST_SEEDS ?? (HOLDFAST_SEED !== undefined ? 1 : isLong ? long : usual));
}
