/**
 * The admission rule: which entries of one key's queue hold the key (decision 0001). Drivers that read the order back from the
 * store call countAdmitted(). The lock table, and with it the memory driver, the document driver and the server, applies the rule one entry at a time
 * (KeyQueue.tryAdmit()). Scripts and procedures restate it (docs/design/rules.md). The oracle compares all of them.
 */

import type { LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";

/** The permits that one entry of a queue requests. */
export type PermitRequest = Pick<LockSpec, "permits" | "limit">;

/** Does an entry fit behind admitted entries that use `used` permits together? */
export function fits(used: number, request: PermitRequest): boolean {
  return used + request.permits <= request.limit;
}

/**
 * How many entries at the front of the queue are admitted. All entries before an admitted one are admitted too, so small
 * claims cannot starve a large one ahead of them. Removing an entry never revokes the admission of another, since the sums
 * only fall. Therefore a store need not record which entries are admitted.
 */
export function countAdmitted(queue: readonly PermitRequest[]): number {
  let used = 0;
  for (const [index, request] of queue.entries()) {
    if (!fits(used, request)) return index;
    used += request.permits;
  }
  return queue.length;
}

/**
 * What a waiting entry should watch on a store with watches: the index of an entry that must be removed first, or "queue"
 * for any removal. For an exclusive entry it is the predecessor, for a shared entry the nearest exclusive one. In a full
 * semaphore any entry ahead may be removed first, so no single index is right.
 */
export function findBlocker(queue: readonly PermitRequest[], ownIndex: number): number | "queue" {
  const own = queue[ownIndex];
  if (own === undefined) throw new RangeError(`no entry ${ownIndex} in a queue of ${queue.length}`);
  if (own.permits >= own.limit) return ownIndex - 1;
  for (let index = ownIndex - 1; index >= 0; index--) {
    if ((queue[index] as PermitRequest).permits >= ALL_PERMITS) return index;
  }
  return "queue";
}
