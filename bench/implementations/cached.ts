/** What makes a client cache its locks: it keeps them after their last release, until another process wants them. */

import type { LocksOptions } from "../../src/index.ts";

export const CACHED: LocksOptions = { cache: "10s" };
