/** A real Redis whose wall clock can be moved while it runs. */

import type { ShiftedClock } from "../shifted-clock.ts";
import * as clocks from "../shifted-clock.ts";
import type { RedisServer } from "./redis.ts";
import { redisUnavailableReason, startRedis } from "./redis.ts";

export interface ShiftedClockRedis extends RedisServer, Pick<ShiftedClock, "shift" | "freeze"> {}

/** Why there can be none here; null if there can. */
export function shiftedClockUnavailableReason(): string | null {
  return redisUnavailableReason() ?? clocks.shiftedClockUnavailableReason();
}

export async function startShiftedClockRedis(settings: readonly string[] = []): Promise<ShiftedClockRedis> {
  const clock = clocks.createShiftedClock();
  const server = await startRedis(settings, clock.environment);
  return {
    ...server,
    shift: clock.shift,
    freeze: clock.freeze,
    async stop() {
      await server.stop();
      clock.dispose();
    },
  };
}
