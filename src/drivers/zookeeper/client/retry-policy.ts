/** How long to stay away from servers none of which could be reached. */

import { describeValue } from "../../../util/duration.ts";

/**
 * Milliseconds to rest after so many rounds in a row in which each server had its turn and none took us: 1, 2, ...
 * Locks are not given up by it: how long a caller waits is said by its `wait`, how long a session lives by its clock.
 */
export type RetryPolicy = (rounds: number) => number;

/**
 * Doubles from firstMs to maxMs, and takes a random share of that (Brooker, "Exponential Backoff and Jitter", 2015).
 * @throws TypeError for times that are none
 */
export function exponential(firstMs: number, maxMs: number, random: () => number = Math.random): RetryPolicy {
  if (!(firstMs > 0 && firstMs <= maxMs && Number.isFinite(maxMs))) {
    throw new TypeError(
      `exponential() takes two times in milliseconds, not ${describeValue(firstMs)} and ${describeValue(maxMs)}`,
    );
  }
  return (rounds) => Math.max(1, random() * Math.min(maxMs, firstMs * 2 ** Math.min(rounds - 1, 50)));
}

/** A user's policy, held to times: what is none counts as the longest rest of the default. */
export function toBackoffMs(retry: RetryPolicy, rounds: number): number {
  const ms = retry(rounds);
  return ms >= 0 && ms <= MAX_USER_BACKOFF_MS ? ms : MAX_BACKOFF_MS;
}

const MAX_USER_BACKOFF_MS = 3_600_000;
export const FIRST_BACKOFF_MS = 20;
export const MAX_BACKOFF_MS = 1_000;
