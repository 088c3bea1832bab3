/** Groups claims into batches, one call each. */

import type { Claim, Driver } from "../spi/driver.ts";

/** The most claims in one renew or release call. */
const MAX_BATCH = 500;

/** Splits items into batches of at most MAX_BATCH, each for one shard of the store; keeps their order. */
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
