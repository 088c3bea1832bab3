/** Every case, in the order in which they run. */

import type { BenchCase } from "../harness/bench-case.ts";
import { tokenServer } from "../rmi/token-server.ts";
import { abusiveClients } from "./abusive-clients.ts";
import { coldFirstUse } from "./cold-first-use.ts";
import { coldHandOff } from "./cold-hand-off.ts";
import { coldInCompany } from "./cold-in-company.ts";
import { etcdContended, etcdHandOff, etcdMultiProcess, etcdUncontended } from "./etcd.ts";
import { exclusion } from "./exclusion.ts";
import { growthHolders } from "./growth-holders.ts";
import { growthPinned } from "./growth-pinned.ts";
import { handOff } from "./hand-off.ts";
import { httpContended, httpUncontended } from "./http.ts";
import { inProcessContended, inProcessUncontended } from "./in-process.ts";
import { constantCost, heldLocks } from "./many-locks.ts";
import { memoryUse } from "./memory-use.ts";
import { multiProcess, tlsMultiProcess } from "./multi-process.ts";
import { redisCached } from "./redis-cached.ts";
import { redisContended, redisMultiProcess, redisStrict } from "./redis-contended.ts";
import { redisExclusion } from "./redis-exclusion.ts";
import { redisHandOff, redisPipelining } from "./redis-hand-off.ts";
import { redisHeldLocks, redisWaiting } from "./redis-held-locks.ts";
import { redisSections, redisSectionsOfProcesses } from "./redis-sections.ts";
import { redisManyKeys, redisUncontended } from "./redis-uncontended.ts";
import { serverCached } from "./server-cached.ts";
import { serverProcesses } from "./server-processes.ts";
import { sqlExclusion } from "./sql-exclusion.ts";
import { sqlHandOff } from "./sql-hand-off.ts";
import { sqlHeld } from "./sql-held.ts";
import { sqlIdleWaiters } from "./sql-idle-waiters.ts";
import { sqlUncontended } from "./sql-uncontended.ts";
import { importTime, runOverhead } from "./startup.ts";
import { socketContended, socketManyKeys, socketUncontended } from "./unix-socket.ts";
import {
  zooKeeperCached,
  zooKeeperContended,
  zooKeeperManyKeys,
  zooKeeperMultiProcess,
  zooKeeperUncontended,
} from "./zookeeper.ts";
import { zooKeeperNodeCreation } from "./zookeeper-node-creation.ts";

export const CASES: readonly BenchCase[] = [
  exclusion,
  socketUncontended,
  socketManyKeys,
  socketContended,
  serverProcesses,
  httpUncontended,
  httpContended,
  ...serverCached,
  multiProcess,
  tlsMultiProcess,
  handOff,
  tokenServer,
  heldLocks,
  constantCost,
  ...growthHolders,
  ...growthPinned,
  abusiveClients,
  inProcessUncontended,
  inProcessContended,
  memoryUse,
  importTime,
  runOverhead,
  coldInCompany,
  coldFirstUse,
  coldHandOff,
  redisExclusion,
  redisUncontended,
  redisManyKeys,
  redisContended,
  redisMultiProcess,
  redisStrict,
  redisSections,
  redisSectionsOfProcesses,
  redisHandOff,
  ...redisCached,
  redisHeldLocks,
  redisWaiting,
  redisPipelining,
  ...sqlUncontended,
  ...sqlExclusion,
  ...sqlHandOff,
  ...sqlIdleWaiters,
  ...sqlHeld,
  zooKeeperUncontended,
  zooKeeperManyKeys,
  zooKeeperContended,
  zooKeeperMultiProcess,
  zooKeeperCached,
  zooKeeperNodeCreation,
  etcdUncontended,
  etcdContended,
  etcdMultiProcess,
  etcdHandOff,
];
