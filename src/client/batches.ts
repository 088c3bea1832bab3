/** Which claims go together in one call. */

import type { Claim, Driver } from "../spi/driver.ts";

/** Claims in one renew or release call. */
const MOST = 500;

/** In calls of at most MOST, those of one part of the store each, in the order in which they came. */
export function batchesOf<T extends { readonly claim: Claim }>(items: readonly T[], driver: Driver): readonly T[][] {
  const shards = new Map<string | undefined, T[][]>();
  for (const item of items) {
    const shard = driver.shardOf?.(item.claim);
    const batches = shards.get(shard) ?? [];
    const last = batches.at(-1);
    if (last !== undefined && last.length < MOST) last.push(item);
    else shards.set(shard, [...batches, [item]]);
  }
  return [...shards.values()].flat();
}
