/** Rounds on one Redis. */

import { REDIS_IMPLEMENTATIONS, REDIS_THIRD_PARTIES } from "../implementations/redis.ts";
import { withBenchRedis } from "./redis.ts";
import type { LoadOptions, StoreKind, StoreRounds } from "./store-rounds.ts";
import { measureOnStore } from "./store-rounds.ts";

export const REDIS: StoreKind = {
  withStore: withBenchRedis,
  isRival: (name) => REDIS_THIRD_PARTIES[name] !== undefined,
  countedCommands: (name) => REDIS_IMPLEMENTATIONS[name]?.countedCommands,
};

export function measureOnRedis(names: readonly string[], options: LoadOptions): Promise<StoreRounds> {
  return measureOnStore(REDIS, names, options);
}
