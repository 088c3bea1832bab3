/** What each primitive means, as lists of holds. */

import type { Hold } from "../spi/driver.ts";
import { ALL_PERMITS } from "./line.ts";

export type Holds = readonly [Hold, ...Hold[]];

/** A mutex, and the writing side of a read-write lock. */
export function exclusive(key: string): Holds {
  return [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }];
}

/** The reading side of a read-write lock. */
export function shared(key: string): Holds {
  return [{ key, permits: 1, limit: ALL_PERMITS }];
}

/** Some permits of a semaphore. */
export function permitsOf(key: string, permits: number, limit: number): Holds {
  return [{ key, permits, limit }];
}

/** Several at once, sorted by key. A key that is named twice must be wanted in the same way; then it counts once. null: it is not. */
export function together(lists: readonly Holds[]): Holds | null {
  const byKey = new Map<string, Hold>();
  for (const hold of lists.flat()) {
    const known = byKey.get(hold.key);
    if (known !== undefined && (known.permits !== hold.permits || known.limit !== hold.limit)) return null;
    byKey.set(hold.key, hold);
  }
  const holds = [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  return holds as unknown as Holds;
}

/** How a wish relates to what its own flow holds of the same key. */
export type Relation = "joins" | "beside" | "deadlock";

/**
 * Joins: served by what is held (reading or writing inside writing, reading inside reading). Beside: permits of a
 * semaphore that fit beside those held, to be claimed. Deadlock: it could only wait for its own flow.
 */
export function relation(held: readonly Hold[], wanted: Hold, reentrant: boolean): Relation {
  let used = wanted.permits;
  for (const hold of held) {
    if (reentrant && isReadWrite(hold) && isReadWrite(wanted) && hold.permits >= wanted.permits) return "joins";
    used += hold.permits;
  }
  return isReadWrite(wanted) || used > wanted.limit ? "deadlock" : "beside";
}

function isReadWrite(hold: Hold): boolean {
  return hold.limit === ALL_PERMITS;
}
