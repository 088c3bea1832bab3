/** Redis servers that know nothing of each other: one, or three of which a majority decides. */

import { join } from "node:path";
import type { DatabaseProcess } from "../processes/database-process.ts";
import type { RedisProcess } from "./redis-process.ts";
import { createRedisProcess, redisVersion } from "./redis-process.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

const MAJORITY_MEMBERS = 3;

export function startRedis(setup: StoreSetup): Promise<StartedStore> {
  return startRedisServers(setup, 1, `Redis ${redisVersion()}`);
}

export function startRedisMajority(setup: StoreSetup): Promise<StartedStore> {
  return startRedisServers(setup, MAJORITY_MEMBERS, `a majority of three Redis ${redisVersion()}`);
}

async function startRedisServers(
  { directory, faults }: StoreSetup,
  count: number,
  storeName: string,
): Promise<StartedStore> {
  const servers: RedisProcess[] = [];
  for (let index = 0; index < count; index++) {
    const server = await createRedisProcess(join(directory, String(index)));
    await server.process.start();
    servers.push(server);
  }
  // with it alone the guide promises exclusion without the data; the lease is that of findLease()
  const isGuarded = faults.includes("store-wipe");
  const name = isGuarded ? `${storeName} with guardDataLoss` : storeName;
  const query = isGuarded ? "?guardDataLoss=1s" : "";
  return {
    name,
    url: servers.map(({ port }) => `redis://127.0.0.1:${port}${query}`).join(" "),
    faults: ["store-kill", "store-restart", "store-pause", ...(isGuarded ? (["store-wipe"] as const) : [])],
    inject: injectInto({
      name,
      servers: servers.map(({ process }) => process) as [DatabaseProcess, ...DatabaseProcess[]],
      wipe: async (struck) => servers.find(({ process }) => process === struck)?.wipe(),
    }),
    close: async () => void (await Promise.all(servers.map(({ process }) => process.crash()))),
  };
}
