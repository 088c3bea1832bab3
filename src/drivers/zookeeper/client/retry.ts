/** How long to stay away from servers none of which could be reached. */

import { shown } from "../../../duration.ts";

/**
 * Milliseconds to rest after so many rounds in a row in which each server had its turn and none took us: 1, 2, ...
 * Locks are not given up by it: how long a caller waits is said by its `wait`, how long a session lives by its clock.
 */
export type RetryPolicy = (rounds: number) => number;

/**
 * Doubles from firstMs to mostMs, and takes a random share of that (Brooker, "Exponential Backoff and Jitter", 2015).
 * @throws TypeError for times that are none
 */
export function exponential(firstMs: number, mostMs: number, random: () => number = Math.random): RetryPolicy {
  if (!(firstMs > 0 && firstMs <= mostMs && Number.isFinite(mostMs))) {
    throw new TypeError(`exponential() takes two times in milliseconds, not ${shown(firstMs)} and ${shown(mostMs)}`);
  }
  return (rounds) => Math.max(1, random() * Math.min(mostMs, firstMs * 2 ** Math.min(rounds - 1, 50)));
}

/** A user's policy, held to times: what is none counts as the longest rest of the default. */
export function restMs(retry: RetryPolicy, rounds: number): number {
  const ms = retry(rounds);
  return ms >= 0 && ms <= MOST_MS ? ms : LONGEST_REST_MS;
}

const MOST_MS = 3_600_000;
export const FIRST_REST_MS = 20;
export const LONGEST_REST_MS = 1_000;
