/** The delay before the next call to a store that failed. */

/**
 * Exponential back-off with full jitter (Brooker, "Exponential Backoff and Jitter", 2015): a random part of a bound that
 * doubles with every consecutive failure.
 * @param failures the number of consecutive failures, at least 1
 * @param random a number from 0 to 1
 * @param maxMs the highest bound
 * @param initialMs the bound after the first failure; the mean of the delay is half of it
 */
export function backoffMs(failures: number, random: number, maxMs: number, initialMs = 20): number {
  const boundMs = Math.min(maxMs, initialMs * 2 ** Math.min(failures - 1, 50));
  return Math.max(1, random * boundMs);
}
