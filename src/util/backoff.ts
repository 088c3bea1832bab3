/** The delay before the next call to a store that failed. */

/** The mean of the first delay is half of this. */
const INITIAL_BOUND_MS = 20;

/**
 * Exponential back-off with full jitter (Brooker, "Exponential Backoff and Jitter", 2015): a random part of a bound that
 * doubles with every consecutive failure.
 * @param failures the number of consecutive failures, at least 1
 * @param random a number from 0 to 1
 * @param maxMs the highest bound
 */
export function backoffMs(failures: number, random: number, maxMs: number): number {
  const boundMs = Math.min(maxMs, INITIAL_BOUND_MS * 2 ** Math.min(failures - 1, 20));
  return Math.max(1, random * boundMs);
}
