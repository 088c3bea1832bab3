/** The target of an acquire, validated: the lock specs for the store, and the keys without the client's prefix. */

import { UnsupportedError } from "../errors.ts";
import type { Traits } from "../spi/driver.ts";
import { ALL_PERMITS, MAX_LOCKS } from "../spi/driver.ts";
import { describeValue } from "../util/duration.ts";
import { validateKey } from "../util/keys.ts";
import type { LockSpecs } from "./lock-spec.ts";
import { exclusive, mergeSpecs, semaphorePermits, shared } from "./lock-spec.ts";

export interface LockTarget {
  /** The lock specs, sorted; their keys have the client's prefix. */
  readonly locks: LockSpecs;
  /** The same keys without the prefix, in the same order. */
  readonly keys: readonly string[];
}

export function mutexTarget(prefix: string, key: unknown): LockTarget {
  return { locks: exclusive(toFullKey(prefix, key)), keys: [key as string] };
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
  for (const { permits, limit } of locks) {
    const isExclusive = permits === ALL_PERMITS && limit === ALL_PERMITS;
    if (isExclusive) continue;
    if (traits.permits === "shared" && permits === 1 && limit === ALL_PERMITS) continue;
    const feature = limit === ALL_PERMITS ? "shared locks" : "semaphores";
    throw new UnsupportedError(`${driver} has no ${feature}`, { keys });
  }
}

/** @throws TypeError */
export function requireCount(value: unknown, name: string, max: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > max) {
    throw new TypeError(`${name} must be a whole number from 1 to ${max}, not ${describeValue(value)}`);
  }
  return value;
}

function toFullKey(prefix: string, key: unknown): string {
  if (prefix === "") return validateKey(key);
  validateKey(key);
  return validateKey(prefix + (key as string), "key with its prefix");
}
