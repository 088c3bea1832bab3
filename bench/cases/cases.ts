/** Every case, in the order in which they run. */

import type { BenchCase } from "../harness/case.ts";
import { exclusion } from "./exclusion.ts";
import { floods } from "./floods.ts";
import { handOff } from "./hand-off.ts";
import { inProcessAlone, inProcessCrowd } from "./in-process.ts";
import { flat, held } from "./many.ts";
import { memoryUse } from "./memory-use.ts";
import { socketAlone, socketCrowd, socketWide } from "./over-socket.ts";
import { processes, secured } from "./processes.ts";
import { loading, running } from "./startup.ts";
import { tokenServer } from "./token-server.ts";

export const CASES: readonly BenchCase[] = [
  exclusion,
  socketAlone,
  socketWide,
  socketCrowd,
  processes,
  secured,
  handOff,
  tokenServer,
  held,
  flat,
  floods,
  inProcessAlone,
  inProcessCrowd,
  memoryUse,
  loading,
  running,
];
