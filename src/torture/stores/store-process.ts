/** The processes of a store that torture starts, kills, stops and starts again. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../testing/random.ts";
import type { DatabaseProcess } from "../processes/database-process.ts";
import type { StartedStore, StoreFault } from "./started-store.ts";
import { StoreFailedError } from "./started-store.ts";

export type StoreServer = Pick<DatabaseProcess, "start" | "stop" | "crash" | "signal">;

export interface StoreProcesses {
  /** For errors. */
  readonly name: string;
  /** A fault strikes one of them. */
  readonly servers: readonly [StoreServer, ...StoreServer[]];
  /** The one that leads, or one of the masters; null: none just now, or all are alike. */
  findLeader?(): Promise<StoreServer | null>;
  /** All of them can be used, and the next fault may strike. */
  isWhole?(): Promise<boolean>;
  /** Has another server take over; false: not just now. */
  failOver?(random: Random): Promise<boolean>;
  /** Removes the data of a server that has ended. */
  wipe?(server: StoreServer): Promise<void>;
  /** Ends it, and these users, as a loss of power does. */
  losePower?(random: Random, users: readonly number[]): Promise<void>;
}

/** A database that checks its data on a busy machine takes its time; one that has not recovered by then never does. */
const REPAIR_MS = 150_000;

/** One fault at a time: of several servers a majority always runs. @param longestMs of a repair */
export function injectInto(store: StoreProcesses, longestMs: number = REPAIR_MS): StartedStore["inject"] {
  let isStruck = false;
  return async (fault, random, users) => {
    if (isStruck) return null;
    isStruck = true;
    const repair = await strike(store, fault, random, users).catch((cause: Error) => {
      throw new StoreFailedError(`${store.name} could not be struck by ${fault}: ${cause.message}`, { cause });
    });
    if (repair === null) {
      isStruck = false;
      return null;
    }
    return async () => {
      await repairWithin(longestMs, store, fault, repair);
      isStruck = false;
    };
  };
}

/** As injectInto(), for a store of one server that has nothing else to lose. */
export function injectIntoServer(name: string, server: StoreServer): StartedStore["inject"] {
  return injectInto({ name, servers: [server] });
}

/** @param signal aborted when it is too late */
type Repair = (signal: AbortSignal) => Promise<void>;

async function strike(
  store: StoreProcesses,
  fault: StoreFault,
  random: Random,
  users: readonly number[],
): Promise<Repair | null> {
  if (fault === "store-fail-over")
    return (await store.failOver?.(random)) === true ? async (): Promise<void> => undefined : null;
  const server = await pickServer(store, random);
  switch (fault) {
    case "store-pause":
      server.signal("SIGSTOP");
      return async () => server.signal("SIGCONT");
    case "store-restart":
      await server.stop();
      break;
    case "power-loss":
      await store.losePower?.(random, users);
      break;
    default:
      await server.crash();
      if (fault === "store-wipe") await store.wipe?.(server);
  }
  return (signal) => startAgain(server, signal);
}

/** Half of the time the leader. */
async function pickServer({ servers, findLeader }: StoreProcesses, random: Random): Promise<StoreServer> {
  if (servers.length === 1) return servers[0];
  // drawn always: a choice does not depend on who leads
  const other = random.pick(servers);
  return random.chance(0.5) ? ((await findLeader?.()) ?? other) : other;
}

const POLL_MS = 50;

/** @throws StoreFailedError */
async function repairWithin(
  longestMs: number,
  { name, isWhole }: StoreProcesses,
  fault: StoreFault,
  repair: Repair,
): Promise<void> {
  const ending = new AbortController();
  const bound = delay(longestMs, undefined, { signal: ending.signal }).then(() => {
    throw new StoreFailedError(`${name} could not be used again within ${longestMs / 1_000} s after ${fault}`);
  });
  const recover = async (): Promise<void> => {
    await repair(ending.signal);
    while (!ending.signal.aborted && (await isWhole?.()) === false) await delay(POLL_MS);
  };
  try {
    await Promise.race([recover(), bound]);
  } catch (cause) {
    if (cause instanceof StoreFailedError) throw cause;
    throw new StoreFailedError(`${name} did not recover from ${fault}: ${(cause as Error).message}`, { cause });
  } finally {
    ending.abort();
    await bound.catch(() => undefined);
  }
}

const START_ATTEMPTS = 20;
const PAUSE_MS = 200;

/** A database that was killed may refuse to start until the last of its processes has ended. */
async function startAgain(server: StoreServer, signal: AbortSignal): Promise<void> {
  for (let attempt = 1; !signal.aborted; attempt++) {
    try {
      await server.start();
      return;
    } catch (error) {
      if (attempt === START_ATTEMPTS) throw error;
      await delay(PAUSE_MS);
    }
  }
}
