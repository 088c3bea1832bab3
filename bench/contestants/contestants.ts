/** Everybody who takes part, by name. */

import type { Contestant } from "../harness/workload.ts";
import { openAsyncMutex } from "./async-mutex.ts";
import { openFloorA, openFloorB } from "./floors.ts";
import { openMemory, openMemoryDriver, openNothing } from "./in-process.ts";
import { openLiveMutex } from "./live-mutex.ts";
import { openHoldfast, openSecured, openStrict } from "./over-socket.ts";
import { REDIS_ENTRANTS } from "./redis.ts";
import { ZOOKEEPER_ENTRANTS } from "./zookeeper.ts";

interface Entrant {
  /** Ready to be measured. @param socket its server's path, where it has a server */
  open(socket: string): Promise<Contestant>;
  /** The server it needs: the name of a program in bench/servers. */
  readonly server?: string;
}

const ENTRANTS: Readonly<Record<string, Entrant>> = {
  "floor A": { open: openFloorA, server: "floor-a" },
  "floor B": { open: openFloorB, server: "floor-b" },
  "live-mutex": { open: openLiveMutex, server: "live-mutex" },
  holdfast: { open: openHoldfast, server: "holdfast" },
  "bare queue, our frames": { open: openHoldfast, server: "bare" },
  "holdfast, TLS": { open: openSecured, server: "holdfast-tls" },
  "holdfast, handoffs 1": { open: openStrict, server: "holdfast" },
  "async-mutex": { open: openAsyncMutex },
  "holdfast, memory": { open: openMemory },
  "memory driver alone": { open: openMemoryDriver },
  "no lock": { open: openNothing },
  ...REDIS_ENTRANTS,
  ...ZOOKEEPER_ENTRANTS,
};

/** @throws if nobody has that name */
export function contestants(name: string): Entrant {
  const entrant = ENTRANTS[name];
  if (entrant === undefined) throw new Error(`no contestant "${name}"`);
  return entrant;
}
