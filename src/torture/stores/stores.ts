/** The stores that torture can start. */

import type { ChildCommand } from "../worker-pool.ts";
import { startEtcd } from "./etcd.ts";
import { startLockServer } from "./lock-server.ts";
import { startMariaDb } from "./mariadb.ts";
import { startNats } from "./nats.ts";
import { startPostgres } from "./postgres.ts";
import { startRedis } from "./redis.ts";
import { startSqlite } from "./sqlite.ts";
import type { StartedStore } from "./started-store.ts";
import { startZooKeeper } from "./zookeeper.ts";

export type StoreName =
  | "server"
  | "server-tcp"
  | "redis"
  | "zookeeper"
  | "etcd"
  | "postgres"
  | "mariadb"
  | "sqlite"
  | "nats";

const STORES: Readonly<Record<StoreName, (directory: string, holdfast: ChildCommand) => Promise<StartedStore>>> = {
  server: (directory, holdfast) => startLockServer(directory, holdfast, "socket"),
  "server-tcp": (directory, holdfast) => startLockServer(directory, holdfast, "tcp"),
  redis: startRedis,
  zookeeper: startZooKeeper,
  etcd: startEtcd,
  postgres: startPostgres,
  mariadb: startMariaDb,
  sqlite: startSqlite,
  nats: startNats,
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
