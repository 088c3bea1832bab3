/** Why a request ends without its lock, by what is known of the claim that represents it at the store. */

import type { LockError } from "../errors.ts";
import { describePause, formatKeys, StoreError, StorePausedError, wrapStoreError } from "../errors.ts";
import type { ActiveClaim } from "./engine.ts";

/** Nothing is known of the claim: its first call is under way. */
export function isAsking({ state }: ActiveClaim): boolean {
  return state.status === "asking" && state.callState.failures === 0;
}

/** The store did not answer the last call about the claim, so nothing is known about the lock. */
export function isFailing({ state }: ActiveClaim): boolean {
  return (state.status === "asking" || state.status === "waiting") && state.callState.failures > 0;
}

export function failedError({ failure }: ActiveClaim, keys: readonly string[]): LockError {
  return wrapStoreError(failure, `could not acquire ${formatKeys(keys)}`, keys);
}

export function lateError(storeName: string, keys: readonly string[]): LockError {
  return new StoreError(`${storeName} answered too late for ${formatKeys(keys)}`, { keys });
}

/**
 * For a request that does not wait: why its claim is not granted, although its keys may be free; null: they are busy.
 */
export function notBusyError(activeClaim: ActiveClaim, keys: readonly string[], now: number): LockError | null {
  if (isFailing(activeClaim)) return failedError(activeClaim, keys);
  const pause = activeClaim.currentPause(now);
  if (pause === undefined) return null;
  return new StorePausedError(`cannot grant ${formatKeys(keys)}: ${describePause(pause)}`, pause, { keys });
}
