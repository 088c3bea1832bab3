/** What each primitive means, as lists of holds. */

import { ALL_PERMITS } from "../lock-table/admission.ts";
import type { LockSpec } from "../spi/driver.ts";

export type LockSpecs = readonly [LockSpec, ...LockSpec[]];

/** A mutex, and the writing side of a read-write lock. */
export function exclusive(key: string): LockSpecs {
  return [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }];
}

/** The reading side of a read-write lock. */
export function shared(key: string): LockSpecs {
  return [{ key, permits: 1, limit: ALL_PERMITS }];
}

/** Some permits of a semaphore. */
export function semaphorePermits(key: string, permits: number, limit: number): LockSpecs {
  return [{ key, permits, limit }];
}

/** Several at once, sorted by key. A key that is named twice must be wanted in the same way; then it counts once. null: it is not. */
export function mergeSpecs(specLists: readonly LockSpecs[]): LockSpecs | null {
  const byKey = new Map<string, LockSpec>();
  for (const spec of specLists.flat()) {
    const existing = byKey.get(spec.key);
    if (existing !== undefined && (existing.permits !== spec.permits || existing.limit !== spec.limit)) return null;
    byKey.set(spec.key, spec);
  }
  const specs = [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  return specs as unknown as LockSpecs;
}

/** How a wish relates to what its own flow holds of the same key. */
export type Nesting = "joins" | "beside" | "deadlock";

/**
 * Joins: served by what is held (reading or writing inside writing, reading inside reading). Beside: permits of a
 * semaphore that fit beside those held, to be claimed. Deadlock: it could only wait for its own flow.
 */
export function resolveNesting(heldSpecs: readonly LockSpec[], wanted: LockSpec, reentrant: boolean): Nesting {
  let usedPermits = wanted.permits;
  for (const spec of heldSpecs) {
    if (reentrant && isReadWrite(spec) && isReadWrite(wanted) && spec.permits >= wanted.permits) return "joins";
    usedPermits += spec.permits;
  }
  return isReadWrite(wanted) || usedPermits > wanted.limit ? "deadlock" : "beside";
}

function isReadWrite(spec: LockSpec): boolean {
  return spec.limit === ALL_PERMITS;
}
