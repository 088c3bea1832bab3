/** Which claims go together in one call. */

import type { Claim, Driver } from "../spi/driver.ts";

/** Claims in one renew or release call. */
const MAX_BATCH = 500;

/** In calls of at most MOST, those of one part of the store each, in the order in which they came. */
export function splitBatches<T extends { readonly claim: Claim }>(
  items: readonly T[],
  driver: Driver,
): readonly (readonly T[])[] {
  if (items.length === 1) return [items]; // the usual release
  const batches: T[][] = [];
  const openBatches = new Map<string | undefined, T[]>();
  for (const item of items) {
    const shard = driver.shardOf?.(item.claim);
    let batch = openBatches.get(shard);
    if (batch === undefined || batch.length === MAX_BATCH) {
      batch = [];
      batches.push(batch);
      openBatches.set(shard, batch);
    }
    batch.push(item);
  }
  return batches;
}
