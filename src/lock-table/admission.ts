/**
 * The admission rule: who, of the places in the line of one key, holds it. The memory driver, our server and every
 * store whose order we read back decide by it; Lua and SQL restate it and are held to it by the oracle.
 */

/** All the permits a key has. A mutex and a writer take them all, a reader takes one. 2^30, so sums stay exact. */
export const ALL_PERMITS: number = 2 ** 30;

/** How many keys one claim may hold at most: what every store can take in one call. */
export const MAX_LOCKS: number = 128;

/** A claim's place in the line of one key. */
export interface PermitRequest {
  readonly id: string;
  readonly permits: number;
  readonly limit: number;
}

/** Does a place fit behind admitted places that use `used` permits together? */
export function fits(used: number, request: { readonly permits: number; readonly limit: number }): boolean {
  return used + request.permits <= request.limit;
}

/**
 * How many places at the front are admitted. Everyone before an admitted place is admitted too, so a large claim at
 * the front is never starved by small ones behind it. Removing a place never takes admission from another, since sums
 * only fall: that is why a store need not remember who holds.
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
 * Whom a waiting place should watch on a store with watches: the index of one place that must go first, or "line" for
 * any removal. The predecessor for exclusive places, the nearest exclusive one for shared places; in a crowded
 * semaphore any of those ahead may go first, so no single index is right.
 */
export function findBlocker(queue: readonly PermitRequest[], ownIndex: number): number | "line" {
  const own = queue[ownIndex];
  if (own === undefined) throw new RangeError(`no place ${ownIndex} in a line of ${queue.length}`);
  if (own.permits >= own.limit) return ownIndex - 1;
  for (let index = ownIndex - 1; index >= 0; index--) {
    if ((queue[index] as PermitRequest).permits >= ALL_PERMITS) return index;
  }
  return "line";
}
