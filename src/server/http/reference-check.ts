/** Rejects references that detach() cannot have made: clients can send any content in a reference. */

import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { ALL_PERMITS, MAX_LOCKS } from "../../spi/driver.ts";
import { MAX_DURATION_MS, MIN_TTL_MS } from "../../util/duration.ts";

/** @throws TypeError */
export function assertPlausibleReference(parts: readonly DetachedClaim[]): void {
  if (parts.length <= MAX_LOCKS && parts.every(isPlausible)) return;
  throw new TypeError("reference must be one made by detach()");
}

function isPlausible({ claim, firstToken, token }: DetachedClaim): boolean {
  const { locks, ttlMs } = claim;
  if (locks.length > MAX_LOCKS || firstToken < 0n || token < firstToken || token >= 1n << 63n) return false;
  if (ttlMs !== "session" && !(isSafeInteger(ttlMs) && ttlMs >= MIN_TTL_MS && ttlMs <= MAX_DURATION_MS)) return false;
  return locks.every(({ key, permits, limit }, index) => {
    const previous = locks[index - 1];
    if (previous !== undefined && previous.key >= key) return false;
    return isSafeInteger(permits) && isSafeInteger(limit) && permits >= 1 && permits <= limit && limit <= ALL_PERMITS;
  });
}

function isSafeInteger(value: unknown): value is number {
  return Number.isSafeInteger(value);
}
