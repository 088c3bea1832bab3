/** A real master with its replica, which has all that the master had when this is settled. */

import { Redis } from "ioredis";
import { until } from "../../../src/testing/until.ts";
import type { RedisServer } from "./redis.ts";
import { startRedis } from "./redis.ts";

type StartServer<S extends RedisServer> = (settings: readonly string[]) => Promise<S>;

/** `startReplica`, `startMaster`: how they are made. */
export async function startRedisPair<S extends RedisServer = RedisServer, M extends RedisServer = RedisServer>(
  startReplica: StartServer<S> = startRedis as StartServer<S>,
  startMaster: StartServer<M> = startRedis as StartServer<M>,
): Promise<readonly [master: M, replica: S]> {
  const master = await startMaster([]);
  const replica = await startReplica(["--replicaof", "127.0.0.1", String(master.port)]);
  const admin = new Redis(master.port, "127.0.0.1");
  await waitForReplicas(admin, 1);
  admin.disconnect();
  return [master, replica];
}

/** Settles when so many replicas have all that was written at this master so far. */
export async function waitForReplicas(master: Redis, count: number): Promise<void> {
  await until(
    async () => {
      const [, masterOffset] = /master_repl_offset:(\d+)/.exec(await master.info("replication")) ?? [];
      const matches = [...(await master.info("replication")).matchAll(/state=online,offset=(\d+)/g)];
      return matches.filter(([, offset]) => Number(offset) >= Number(masterOffset)).length >= count;
    },
    { within: 30_000, what: "the replicas" },
  );
}

/** Makes a replica a master, whatever it has missed. */
export async function promoteReplica(replica: Redis): Promise<void> {
  await replica.call("REPLICAOF", "NO", "ONE");
}

/** Makes a server the replica of another, whose data it then has. */
export async function demoteMaster(server: Redis, master: RedisServer): Promise<void> {
  await server.call("REPLICAOF", "127.0.0.1", String(master.port));
  await until(async () => /master_link_status:up/.test(await server.info("replication")), {
    within: 30_000,
    what: "the data of its master",
  });
}
