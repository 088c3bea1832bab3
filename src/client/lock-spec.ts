/** The lock specs of each lock type, validated. */

import { UnsupportedError } from "../errors.ts";
import type { LockSpec, Traits } from "../spi/driver.ts";
import { ALL_PERMITS, isExclusive, MAX_LOCKS } from "../spi/driver.ts";
import { validateKey } from "../util/keys.ts";
import { countRule, requireValid } from "../util/validate.ts";

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

export function isEachExclusive(locks: readonly LockSpec[]): boolean {
  return locks.every(isExclusive);
}

/**
 * Merges lock specs and sorts them by key. Equal specs of one key count once; null if a key has two different specs.
 */
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

/** What an acquire locks, validated. */
export interface LockTarget {
  /** The lock specs, sorted; their keys have the client's prefix. */
  readonly locks: LockSpecs;
  /** The same keys without the prefix, in the same order. */
  readonly keys: readonly string[];
}

/** @param argument how messages name the key; default "key" */
export function mutexTarget(prefix: string, key: unknown, argument?: string): LockTarget {
  return { locks: exclusive(toFullKey(prefix, key, argument)), keys: [key as string] };
}

export function readTarget(prefix: string, key: unknown): LockTarget {
  return { locks: shared(toFullKey(prefix, key)), keys: [key as string] };
}

/** @throws TypeError naming permits or limit */
export function semaphoreTarget(prefix: string, key: unknown, permits: unknown = 1, limit: unknown): LockTarget {
  const max = requireCount(limit, "limit", ALL_PERMITS - 1);
  return {
    locks: semaphorePermits(toFullKey(prefix, key), requireCount(permits, "permits", max), max),
    keys: [key as string],
  };
}

/** @throws TypeError without targets, with too many keys, or if one key is requested in two different modes */
export function combineTargets(prefix: string, targets: readonly LockTarget[]): LockTarget {
  if (targets.length === 0) throw new TypeError("all() needs at least one key");
  const locks = mergeSpecs(targets.map((target) => target.locks));
  if (locks === null) throw new TypeError("all() must not request one key in two different modes");
  if (locks.length > MAX_LOCKS) throw new TypeError(`all() takes at most ${MAX_LOCKS} keys, not ${locks.length}`);
  return { locks, keys: locks.map(({ key }) => key.slice(prefix.length)) };
}

/** @throws UnsupportedError if the store does not support these locks; called before anything is sent */
export function checkSupported({ locks, keys }: LockTarget, traits: Traits, driver: string): void {
  if (traits.permits === "any") return;
  for (const spec of locks) {
    if (isExclusive(spec)) continue;
    if (traits.permits === "shared" && spec.permits === 1 && spec.limit === ALL_PERMITS) continue;
    const feature = spec.limit === ALL_PERMITS ? "shared locks" : "semaphores";
    throw new UnsupportedError(`${driver} has no ${feature}`, { keys });
  }
}

/** @throws TypeError */
export function requireCount(value: unknown, name: string, max: number): number {
  requireValid(value, name, countRule(max));
  return value as number;
}

function toFullKey(prefix: string, key: unknown, argument = "key"): string {
  const valid = validateKey(key, argument);
  return prefix === "" ? valid : validateKey(prefix + valid, `${argument} with its prefix`);
}
