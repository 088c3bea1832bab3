/** All implementations of locks that the bench measures, by name. */

import type { HoldKey, LockImplementation } from "../harness/closed-loop.ts";
import { openAsyncMutex } from "./async-mutex.ts";
import { openEchoBaseline, openQueueBaseline } from "./baselines.ts";
import { ETCD_IMPLEMENTATIONS } from "./etcd.ts";
import { openHttp } from "./holdfast-http.ts";
import { openCached, openHoldfast, openStrict, openTls } from "./holdfast-server.ts";
import { openMemory, openMemoryCached, openMemoryDriver, openMemoryUsing, openNoLock } from "./in-process.ts";
import { openLiveMutex } from "./live-mutex.ts";
import { REDIS_IMPLEMENTATIONS } from "./redis.ts";
import { SQL_IMPLEMENTATIONS } from "./sql.ts";
import { ZOOKEEPER_IMPLEMENTATIONS } from "./zookeeper.ts";

interface ImplementationEntry {
  /** Ready to be measured. @param socket its server's path, where it has a server */
  open(socket: string): Promise<LockImplementation>;
  /** For locks that are prolonged by themselves; undefined: it has none. */
  holdLocks?(address: string, ttl: number): Promise<HoldKey>;
  /** The server it needs: the name of a program in bench/servers. */
  readonly server?: string;
}

export const IMPLEMENTATIONS: Readonly<Record<string, ImplementationEntry>> = {
  "floor A": { open: openEchoBaseline, server: "baseline-echo" },
  "floor B": { open: openQueueBaseline, server: "baseline-queue" },
  "live-mutex": { open: openLiveMutex, server: "live-mutex" },
  holdfast: { open: openHoldfast, server: "holdfast" },
  "bare queue, our frames": { open: openHoldfast, server: "minimal-protocol" },
  "holdfast, TLS": { open: openTls, server: "holdfast-tls" },
  "holdfast, HTTP": { open: openHttp, server: "holdfast-http" },
  "holdfast, strict order": { open: openStrict, server: "holdfast" },
  "holdfast, cached": { open: openCached, server: "holdfast" },
  "async-mutex": { open: openAsyncMutex },
  "holdfast, memory": { open: openMemory },
  "holdfast, memory, cached": { open: openMemoryCached },
  "holdfast, memory, using": { open: openMemoryUsing },
  "memory driver alone": { open: openMemoryDriver },
  "no lock": { open: openNoLock },
  ...REDIS_IMPLEMENTATIONS,
  ...SQL_IMPLEMENTATIONS,
  ...ZOOKEEPER_IMPLEMENTATIONS,
  ...ETCD_IMPLEMENTATIONS,
};

/** @throws if none has that name */
export function findImplementation(name: string): ImplementationEntry {
  const entry = IMPLEMENTATIONS[name];
  if (entry === undefined) throw new Error(`no implementation "${name}"`);
  return entry;
}
