/** What is to be locked, checked: the holds as the store sees them and the keys as the caller named them. */

import type { Holds } from "../core/holds.ts";
import { exclusive, permitsOf, shared, together } from "../core/holds.ts";
import { ALL_PERMITS, MAX_HOLDS } from "../core/line.ts";
import { shown } from "../duration.ts";
import { UnsupportedError } from "../errors.ts";
import { checkedKey } from "../keys.ts";
import type { Traits } from "../spi/driver.ts";

export interface Target {
  /** Keys with the client's prefix, sorted. */
  readonly holds: Holds;
  /** The same keys as the caller named them, in the same order. */
  readonly keys: readonly string[];
}

export function mutexTarget(prefix: string, key: unknown): Target {
  return { holds: exclusive(fullKey(prefix, key)), keys: [key as string] };
}

export function readTarget(prefix: string, key: unknown): Target {
  return { holds: shared(fullKey(prefix, key)), keys: [key as string] };
}

/** @throws TypeError naming permits or limit */
export function semaphoreTarget(prefix: string, key: unknown, permits: unknown = 1, limit: unknown): Target {
  const most = checkedCount(limit, "limit", ALL_PERMITS - 1);
  return {
    holds: permitsOf(fullKey(prefix, key), checkedCount(permits, "permits", most), most),
    keys: [key as string],
  };
}

/** @throws TypeError if there is none, too many, or one key is wanted in two ways */
export function allTarget(prefix: string, targets: readonly Target[]): Target {
  if (targets.length === 0) throw new TypeError("all() needs at least one key");
  const holds = together(targets.map((target) => target.holds));
  if (holds === null) throw new TypeError("all() must not name one key in two ways");
  if (holds.length > MAX_HOLDS) throw new TypeError(`all() takes at most ${MAX_HOLDS} keys, not ${holds.length}`);
  return { holds, keys: holds.map(({ key }) => key.slice(prefix.length)) };
}

/** @throws UnsupportedError if the store cannot keep such claims; before anything is sent */
export function checkSupported({ holds, keys }: Target, traits: Traits, driver: string): void {
  if (traits.permits === "any") return;
  for (const { permits, limit } of holds) {
    const exclusively = permits === ALL_PERMITS && limit === ALL_PERMITS;
    if (exclusively) continue;
    if (traits.permits === "shared" && permits === 1 && limit === ALL_PERMITS) continue;
    const what = limit === ALL_PERMITS ? "shared locks" : "semaphores";
    throw new UnsupportedError(`${driver} has no ${what}`, { keys });
  }
}

/** @throws TypeError */
export function checkedCount(value: unknown, name: string, most: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > most) {
    throw new TypeError(`${name} must be a whole number from 1 to ${most}, not ${shown(value)}`);
  }
  return value;
}

function fullKey(prefix: string, key: unknown): string {
  if (prefix === "") return checkedKey(key);
  checkedKey(key);
  return checkedKey(prefix + (key as string), "key with its prefix");
}
