/** Stores by kind, each of the bench's own, which give one more client of this process at a time. */

import { Redis } from "ioredis";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Locks, LocksOptions } from "../../src/index.ts";
import { connect, createLocks } from "../../src/index.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { parsePort } from "./address.ts";
import type { BenchStore } from "./bench-store.ts";
import { withBenchMariaDb, withBenchPostgres, withBenchSqlite } from "./database.ts";
import { withProcessGroup } from "./process-groups.ts";
import { withBenchRedises } from "./redis.ts";
import { withBenchZooKeeper } from "./zookeeper.ts";

/** Opens one more client. */
type OpenClient = () => Promise<Locks>;

export interface GrowthStore {
  /** Ends the names of its cases. */
  readonly id: string;
  readonly title: string;
  /** Starts one, gives it to `use`, and ends it. */
  withClients<T>(use: (open: OpenClient) => Promise<T>): Promise<T>;
}

/** So long that nothing is renewed while it is measured. */
const OPTIONS: LocksOptions = { ttl: "20m" };

export const MEMORY: GrowthStore = {
  id: "memory",
  title: "In process",
  withClients(use) {
    const store = memoryStore();
    return use(async () => createLocks(memory({ store }), OPTIONS));
  },
};

export const SERVER: GrowthStore = {
  id: "server",
  title: "Our server, on TCP",
  withClients: (use) =>
    withProcessGroup("holdfast", { processes: 0, tcp: true }, ({ address }) =>
      use(() => connect(`holdfast://127.0.0.1:${parsePort(address)}`, OPTIONS)),
    ),
};

export const REDIS: GrowthStore = {
  id: "redis",
  title: "Redis",
  withClients: (use) =>
    withBenchRedises(1, ([server]) => use(async () => createLocks(toRedisDriver(server as BenchStore), OPTIONS))),
};

const MEMBERS = 3;

export const QUORUM: GrowthStore = {
  id: "quorum",
  title: `A majority of ${MEMBERS} Redis`,
  withClients: (use) =>
    withBenchRedises(MEMBERS, (servers) => use(async () => createLocks(quorum(servers.map(toRedisDriver)), OPTIONS))),
};

export const ZOOKEEPER: GrowthStore = {
  id: "zookeeper",
  title: "ZooKeeper",
  withClients: (use) =>
    withBenchZooKeeper(({ address }) => use(() => connect(`zookeeper://${address}`, { ...OPTIONS, ttl: "session" }))),
};

export const POSTGRES: GrowthStore = {
  id: "postgres",
  title: "PostgreSQL",
  withClients: (use) => withBenchPostgres(({ address }) => use(() => connect(address, OPTIONS))),
};

export const MARIADB: GrowthStore = {
  id: "mysql",
  title: "MariaDB",
  withClients: (use) => withBenchMariaDb(({ address }) => use(() => connect(address, OPTIONS))),
};

export const SQLITE: GrowthStore = {
  id: "sqlite",
  title: "SQLite",
  withClients: (use) => withBenchSqlite(({ address }) => use(() => connect(address, OPTIONS))),
};

function toRedisDriver({ address }: BenchStore): Driver {
  const port = parsePort(address) ?? 0;
  // of a server that keeps nothing, which is as wanted here
  return redis(() => new Redis(port, "127.0.0.1"), { warn: () => undefined });
}
