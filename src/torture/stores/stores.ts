/** The stores that torture can start. */

import { startEtcd, startEtcdCluster } from "./etcd.ts";
import { startLockServer } from "./lock-server.ts";
import { startMariaDb } from "./mariadb.ts";
import { startNats } from "./nats.ts";
import { startPostgres } from "./postgres.ts";
import { startRedis, startRedisMajority } from "./redis.ts";
import { startRedisCluster } from "./redis-cluster.ts";
import { startRedisSentinel } from "./redis-sentinel.ts";
import { startSqlite } from "./sqlite.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { startZooKeeper, startZooKeeperEnsemble } from "./zookeeper.ts";

export type StoreName =
  | "server"
  | "server-tcp"
  | "redis"
  | "redis-sentinel"
  | "redis-cluster"
  | "redis-majority"
  | "zookeeper"
  | "zookeeper-3"
  | "etcd"
  | "etcd-3"
  | "postgres"
  | "mariadb"
  | "sqlite"
  | "nats";

const STORES: Readonly<Record<StoreName, (setup: StoreSetup) => Promise<StartedStore>>> = {
  server: (setup) => startLockServer(setup, "socket"),
  "server-tcp": (setup) => startLockServer(setup, "tcp"),
  redis: startRedis,
  "redis-sentinel": startRedisSentinel,
  "redis-cluster": startRedisCluster,
  "redis-majority": startRedisMajority,
  zookeeper: startZooKeeper,
  "zookeeper-3": startZooKeeperEnsemble,
  etcd: startEtcd,
  "etcd-3": startEtcdCluster,
  postgres: startPostgres,
  mariadb: startMariaDb,
  sqlite: startSqlite,
  nats: startNats,
};

export const STORE_NAMES: readonly StoreName[] = Object.keys(STORES) as StoreName[];

/** @throws Error if its program is missing, or does not start */
export function startStore(name: StoreName, setup: StoreSetup): Promise<StartedStore> {
  return STORES[name](setup);
}
