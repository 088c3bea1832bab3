/** Every case, in the order in which they run. */

import type { BenchCase } from "../harness/case.ts";
import { exclusion } from "./exclusion.ts";
import { inProcessAlone, inProcessCrowd } from "./in-process.ts";
import { memoryUse } from "./memory-use.ts";
import { socketAlone, socketCrowd, socketWide } from "./over-socket.ts";
import { processes } from "./processes.ts";
import { loading, running } from "./startup.ts";

export const CASES: readonly BenchCase[] = [
  exclusion,
  socketAlone,
  socketWide,
  socketCrowd,
  processes,
  inProcessAlone,
  inProcessCrowd,
  memoryUse,
  loading,
  running,
];
