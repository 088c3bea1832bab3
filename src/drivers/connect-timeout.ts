/** The option `connectTimeout`, which all drivers that connect have, and attempts to open within it. */

import { isFatalError } from "../errors.ts";
import { backoffMs } from "../util/backoff.ts";
import type { Duration } from "../util/duration.ts";
import { parseDuration } from "../util/duration.ts";
import type { TimerClock } from "../util/timeout.ts";
import { sleep } from "../util/timeout.ts";

/** The longest delay before the next attempt. */
const MAX_DELAY_MS = 500;

/** How long open() tries to reach the store, in milliseconds. @param connectTimeout validated */
export function toConnectTimeoutMs(connectTimeout: Duration = 5_000): number {
  return parseDuration(connectTimeout, "connectTimeout");
}

/**
 * Repeats attempts to open until one succeeds. Rejects as the last of them when the time has passed, and at once if a retry cannot
 * succeed. An attempt must have a bound of its own.
 */
export async function openWithRetries<T>(clock: TimerClock, timeoutMs: number, open: () => Promise<T>): Promise<T> {
  const deadline = clock.now() + timeoutMs;
  for (let failures = 1; ; failures++) {
    try {
      return await open();
    } catch (error) {
      const remainingMs = deadline - clock.now();
      if (isFatalError(error) || remainingMs < 1) throw error;
      await sleep(clock, Math.min(backoffMs(failures, Math.random(), MAX_DELAY_MS), remainingMs / 2));
    }
  }
}
