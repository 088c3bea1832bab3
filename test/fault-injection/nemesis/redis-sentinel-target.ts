/**
 * A Redis master with a replica and three Sentinels. Both keep their data on small disks (appendfsync always), and a grant
 * counts only when the replica has it (`replicas=1`): so no fault may let two commands in at once.
 */

import { setTimeout as delay } from "node:timers/promises";
import { until } from "../../../src/testing/until.ts";
import { askReplication } from "../../../src/torture/stores/redis-process.ts";
import type { StoreServer } from "../../../src/torture/stores/store-process.ts";
import { injectInto } from "../../../src/torture/stores/store-process.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import type { SmallDisk } from "../../support/processes/small-disk.ts";
import { mountSmallDisk } from "../../support/processes/small-disk.ts";
import type { RedisSentinels } from "../../support/stores/redis-sentinel.ts";
import { startRedisSentinels } from "../../support/stores/redis-sentinel.ts";
import type { Target } from "./faults.ts";
import { createFaultOf, diskFault, tortureFaults, victimFaults } from "./faults.ts";

const DOWN_AFTER_MS = 500;
const STOP_MS = 30_000;
const WHOLE_MS = 40_000;
const SERVERS = [0, 1] as const;
type Index = (typeof SERVERS)[number];

export async function redisSentinelTarget(harness: ProcessHarness, diskMebibytes = 64): Promise<Target> {
  const disks: readonly [SmallDisk, SmallDisk] = [
    await mountSmallDisk(harness, "disk0", diskMebibytes),
    await mountSmallDisk(harness, "disk1", diskMebibytes),
  ];
  const settings = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
  const redis = await startRedisSentinels(DOWN_AFTER_MS, {
    settings,
    serverPlaces: [
      { folder: disks[0].path, commandPrefix: disks[0].commandPrefix },
      { folder: disks[1].path, commandPrefix: disks[1].commandPrefix },
    ],
  });
  const servers = [toServer(redis, 0), toServer(redis, 1)] as const;

  /** The master as the Sentinels know it. */
  async function findMaster(): Promise<Index> {
    return (await redis.masterPort()) === redis.ports[1] ? 1 : 0;
  }

  /** Ends connections of this kind at both servers. */
  async function killConnections(type: "normal" | "pubsub"): Promise<{ ms: number; repair(): Promise<void> }> {
    for (const server of SERVERS) {
      if (redis.hasEnded(server)) continue;
      // a stopped server answers when it continues
      void redis.admin[server].call("CLIENT", "KILL", "TYPE", type).catch(() => undefined);
    }
    await delay(20);
    return { ms: 0, repair: async () => undefined };
  }

  /** One is the master, as the Sentinels know, and the other has all of its data. */
  async function isWhole(): Promise<boolean> {
    const [master, replica] = (await findMaster()) === 0 ? SERVERS : ([1, 0] as const);
    return (
      /state=online/.test(await askReplication(redis.ports[master])) &&
      /master_link_status:up/.test(await askReplication(redis.ports[replica]))
    );
  }

  /** A full disk ends them. */
  async function startEnded(): Promise<void> {
    for (const server of SERVERS) if (redis.hasEnded(server)) await redis.start(server);
  }

  const name = "Redis with Sentinels";
  const store = {
    faults: ["store-kill", "store-restart", "store-pause", "store-fail-over"] as const,
    inject: injectInto({
      name,
      servers,
      findLeader: async () => servers[await findMaster()],
      failOver: () => redis.failOver(),
    }),
  };
  const sentinels = redis.sentinels.map(({ port }) => `127.0.0.1:${port}`).join(",");
  return {
    name,
    clients: {
      url: `redis+sentinel://${sentinels}/${redis.name}?replicas=1`,
      leaseFlags: ["--ttl", "2s", "--grace", "900ms"],
    },
    faults: (victims) => [
      ...victimFaults(victims),
      ...tortureFaults(store, []),
      createFaultOf("cut", () => killConnections("normal")),
      createFaultOf("cut subscribers", () => killConnections("pubsub")),
      diskFault(async () => disks[await findMaster()]),
    ],
    async waitUntilWhole() {
      await startEnded();
      await until(isWhole, { within: WHOLE_MS, what: "a master with its replica after the repair" });
    },
    close: () => redis.stop(),
  };
}

function toServer(redis: RedisSentinels, server: Index): StoreServer {
  return {
    async start() {
      if (redis.hasEnded(server)) await redis.start(server);
    },
    async stop() {
      if (redis.hasEnded(server)) return;
      redis.signal(server, "SIGTERM");
      await until(() => redis.hasEnded(server), { within: STOP_MS, what: "the end of Redis" });
    },
    crash: () => redis.kill(server),
    signal: (name) => redis.signal(server, name),
  };
}
