/** Every case, in the order in which they run. */

import type { BenchCase } from "../harness/case.ts";
import { inProcessAlone, inProcessCrowd } from "./in-process.ts";
import { memoryUse } from "./memory-use.ts";

export const CASES: readonly BenchCase[] = [inProcessAlone, inProcessCrowd, memoryUse];
