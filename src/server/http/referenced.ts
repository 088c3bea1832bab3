/** What a reference says is believed only as far as it could have been made by detach(). */

import { MAX_DURATION_MS, MIN_TTL_MS } from "../../duration.ts";
import type { Referenced } from "../../reference.ts";
import { ALL_PERMITS, MAX_HOLDS } from "../../spi/driver.ts";

/** @throws TypeError */
export function checkReferenced(parts: readonly Referenced[]): void {
  if (parts.length <= MAX_HOLDS && parts.every(isPossible)) return;
  throw new TypeError("reference must be one made by detach()");
}

function isPossible({ claim, run, token }: Referenced): boolean {
  const { holds, ttlMs } = claim;
  if (holds.length > MAX_HOLDS || run < 0n || token < run || token >= 1n << 63n) return false;
  if (ttlMs !== "session" && !(isCount(ttlMs) && ttlMs >= MIN_TTL_MS && ttlMs <= MAX_DURATION_MS)) return false;
  return holds.every(({ key, permits, limit }, at) => {
    const before = holds[at - 1];
    if (before !== undefined && before.key >= key) return false;
    return isCount(permits) && isCount(limit) && permits >= 1 && permits <= limit && limit <= ALL_PERMITS;
  });
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value);
}
