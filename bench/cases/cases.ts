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
import { redisAlone, redisCrowd, redisProcesses, redisSections, redisStrict, redisWide } from "./redis.ts";
import { redisExclusion } from "./redis-exclusion.ts";
import { redisHandOff, redisPipelining } from "./redis-hand-off.ts";
import { redisHeld, redisWaiting } from "./redis-held.ts";
import { loading, running } from "./startup.ts";
import { tokenServer } from "./token-server.ts";
import { zooKeeperAlone, zooKeeperCrowd, zooKeeperProcesses, zooKeeperWide } from "./zookeeper.ts";
import { zooKeeperCreates } from "./zookeeper-creates.ts";

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
  redisExclusion,
  redisAlone,
  redisWide,
  redisCrowd,
  redisProcesses,
  redisStrict,
  redisSections,
  redisHandOff,
  redisHeld,
  redisWaiting,
  redisPipelining,
  zooKeeperAlone,
  zooKeeperWide,
  zooKeeperCrowd,
  zooKeeperProcesses,
  zooKeeperCreates,
];
