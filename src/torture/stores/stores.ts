/** The stores that torture can start. */

import type { ChildCommand } from "../worker-pool.ts";
import { startLockServer } from "./lock-server.ts";
import { startRedis } from "./redis.ts";
import type { StartedStore } from "./started-store.ts";

type StartStore = (directory: string, holdfast: ChildCommand) => Promise<StartedStore>;

export type StoreName = "server" | "server-tcp" | "redis";

const STORES: Readonly<Record<StoreName, StartStore>> = {
  server: (directory, holdfast) => startLockServer(directory, holdfast, "socket"),
  "server-tcp": (directory, holdfast) => startLockServer(directory, holdfast, "tcp"),
  redis: (directory) => startRedis(directory),
};

export const STORE_NAMES: readonly StoreName[] = Object.keys(STORES) as StoreName[];

/**
 * @param directory for its data
 * @param holdfast the command of this program
 * @throws Error if its program is missing, or does not start
 */
export function startStore(name: StoreName, directory: string, holdfast: ChildCommand): Promise<StartedStore> {
  return STORES[name](directory, holdfast);
}
