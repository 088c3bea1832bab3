/** Random turns of several processes on a real Redis; what is checked stands in turn-fuzz.ts. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { TurnFuzzer } from "./turn-fuzz.ts";

const isLong = process.env.HOLDFAST_LONG === "1";
const { HOLDFAST_SEED, HOLDFAST_SEEDS } = process.env;
const FIRST_SEED = Number(HOLDFAST_SEED ?? 1);
const SEEDS = Number(HOLDFAST_SEEDS ?? (HOLDFAST_SEED !== undefined ? 1 : isLong ? 2_000 : 30));
/** They have found faults. */
const KNOWN_SEEDS = HOLDFAST_SEED === undefined ? [136, 752, 1052, 1100, 1108, 1682, 1732] : [];
const STEPS_PER_SEED = 150;
const unavailableReason = shiftedClockUnavailableReason();

describe.skipIf(unavailableReason !== null)(
  `random turns${unavailableReason === null ? "" : ` (skipped: ${unavailableReason})`}`,
  () => {
    let server: ShiftedClockRedis;
    let fuzzer: TurnFuzzer;
    beforeAll(async () => {
      server = await startShiftedClockRedis();
      fuzzer = new TurnFuzzer(server);
    }, 180_000);
    afterAll(async () => {
      fuzzer?.close();
      server?.shift(0);
      await server?.stop();
    });

    test(`${SEEDS} seeds from ${FIRST_SEED} on`, { timeout: isLong ? 6 * 3_600_000 : 180_000 }, async () => {
      const seeds = Array.from({ length: SEEDS }, (_, index) => FIRST_SEED + index);
      for (const seed of [...KNOWN_SEEDS, ...seeds]) await fuzzer.run(seed, STEPS_PER_SEED);
      const { statistics } = fuzzer;
      console.log(`figure: random turns: ${JSON.stringify(statistics)}`);
      if (SEEDS > 1) for (const count of Object.values(statistics)) expect(count).toBeGreaterThan(5);
    });
  },
);
