/** What fencing uses of a lock. */

import type { Lock, LockGrant } from "../client/lock.ts";
import { isObject } from "../util/validate.ts";

/** What fence() uses of a lock. */
export type FencedLock = Pick<Lock, "grants" | "remainingMs" | "throwIfLost">;

/** The grants in the order of the keys in the store, in which all transactions lock their rows. @throws LockLostError, UnsupportedError, TypeError */
export function readGrants(lock: FencedLock): readonly LockGrant[] {
  if (!isObject(lock) || typeof lock.throwIfLost !== "function")
    throw new TypeError("lock must be a lock of acquire()");
  lock.throwIfLost();
  return [...lock.grants].sort((a, b) => (a.storeKey < b.storeKey ? -1 : 1));
}
