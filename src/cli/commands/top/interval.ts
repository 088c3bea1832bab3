/** How often `holdfast top` reads the list of a store. */

/** Reading takes at most one twentieth of the time: a list that took 1 s is read again after 19 s. */
const PAUSE_FACTOR = 19;

/** After a failure the store is tried again no later than this. */
const MAX_RETRY_PAUSE_MS = 5_000;

/**
 * The time from the start of a list that took `tookMs` to the start of the next one. `previousMs`: what the list before
 * took, if there was one. The shorter time counts: a store that stood still once must not be left alone for minutes.
 */
export function computeInterval(wantedMs: number, tookMs: number, previousMs: number | null): number {
  return Math.max(wantedMs, Math.ceil(Math.min(tookMs, previousMs ?? tookMs) * (1 + PAUSE_FACTOR)));
}

/** The pause after a list that failed after `tookMs`. `isAbsent`: no server was there, so none had work with it. */
export function computeRetryPause(wantedMs: number, tookMs: number, isAbsent: boolean): number {
  return isAbsent ? wantedMs : Math.max(wantedMs, Math.min(tookMs * PAUSE_FACTOR, MAX_RETRY_PAUSE_MS));
}
