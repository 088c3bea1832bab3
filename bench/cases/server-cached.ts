/** Cached locks of our server, on TCP. */

import type { BenchCase } from "../harness/bench-case.ts";
import { SERVERS } from "../harness/server-rounds.ts";
import type { CachingSubject } from "./cached.ts";
import { createReuse, createTurns, createWaiter } from "./cached.ts";

const SUBJECT: CachingSubject = {
  group: "server",
  title: "Our server",
  kind: SERVERS,
  uncached: "holdfast",
  cached: "holdfast, cached",
  lossy: null,
};

export const serverCached: readonly BenchCase[] = [createReuse(SUBJECT), createTurns(SUBJECT), createWaiter(SUBJECT)];
