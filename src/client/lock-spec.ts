/** The lock specs of each lock type, and how a nested request relates to the locks of its flow. */

import type { LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";

export type LockSpecs = readonly [LockSpec, ...LockSpec[]];

/** A mutex, or the write lock of a read-write lock. */
export function exclusive(key: string): LockSpecs {
  return [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }];
}

/** The read lock of a read-write lock. */
export function shared(key: string): LockSpecs {
  return [{ key, permits: 1, limit: ALL_PERMITS }];
}

/** Permits of a semaphore. */
export function semaphorePermits(key: string, permits: number, limit: number): LockSpecs {
  return [{ key, permits, limit }];
}

/** Merges lock specs and sorts them by key. Equal specs of one key count once; null if a key has two different specs. */
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

/** How a nested request relates to the locks that its flow holds on the same key. */
export type Nesting = "joins" | "beside" | "deadlock";

/**
 * joins: a held lock covers the request (reading or writing inside writing, reading inside reading). beside: the request
 * needs a claim of its own, for semaphore permits that fit beside the held ones. deadlock: it would wait for its own flow.
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
