/** The delay before the next attempt when no server could be reached. */

import { backoffMs } from "../../../util/backoff.ts";
import { describeValue } from "../../../util/duration.ts";

/**
 * Returns the delay in milliseconds after this many failed rounds in a row (1, 2, ...); in a round each server is tried
 * once. It does not limit waiting: a caller's `wait` does, and the session's clock ends the session.
 */
export type RetryPolicy = (rounds: number) => number;

/**
 * A delay that doubles from firstMs to maxMs, with full jitter.
 * @throws TypeError for invalid times
 */
export function exponential(firstMs: number, maxMs: number, random: () => number = Math.random): RetryPolicy {
  if (!(firstMs > 0 && firstMs <= maxMs && Number.isFinite(maxMs))) {
    throw new TypeError(
      `exponential() takes two durations in milliseconds, not ${describeValue(firstMs)} and ${describeValue(maxMs)}`,
    );
  }
  return (rounds) => backoffMs(rounds, random(), maxMs, firstMs);
}

/** Calls a user-supplied policy; an invalid delay is replaced by the default's maximum. */
export function toBackoffMs(retry: RetryPolicy, rounds: number): number {
  const ms = retry(rounds);
  return ms >= 0 && ms <= MAX_USER_BACKOFF_MS ? ms : MAX_BACKOFF_MS;
}

const MAX_USER_BACKOFF_MS = 3_600_000;
export const FIRST_BACKOFF_MS = 20;
export const MAX_BACKOFF_MS = 1_000;
