/** Cached locks in Redis. */

import type { BenchCase } from "../harness/bench-case.ts";
import { REDIS } from "../harness/redis-rounds.ts";
import { HOLDFAST, HOLDFAST_CACHED, HOLDFAST_LOSSY } from "../implementations/redis.ts";
import type { CachingSubject } from "./cached.ts";
import { createReuse, createTurns, createWaiter } from "./cached.ts";

const SUBJECT: CachingSubject = {
  group: "redis",
  title: "Redis",
  kind: REDIS,
  uncached: HOLDFAST,
  cached: HOLDFAST_CACHED,
  lossy: HOLDFAST_LOSSY,
};

export const redisCached: readonly BenchCase[] = [createReuse(SUBJECT), createTurns(SUBJECT), createWaiter(SUBJECT)];
