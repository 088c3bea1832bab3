/**
 * A Redis master with a replica and three Sentinels. Both keep their data on small disks (appendfsync always), and a grant
 * counts only when the replica has it (`replicas=1`): so no fault may let two commands in at once.
 */

import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import type { Random } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import type { ProcessHarness, RunningProcess } from "../../support/processes/process-harness.ts";
import type { SmallDisk } from "../../support/processes/small-disk.ts";
import { mountSmallDisk } from "../../support/processes/small-disk.ts";
import { startRedisSentinels } from "../../support/stores/redis-sentinel.ts";
import type { FaultName, Target, Victims } from "./faults.ts";
import { shuffle } from "./faults.ts";

const DOWN_AFTER_MS = 500;
const SERVERS = [0, 1] as const;
type Index = (typeof SERVERS)[number];

export async function redisSentinelTarget(
  harness: ProcessHarness,
  random: Random,
  diskMebibytes = 64,
): Promise<Target> {
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
  const stopped = new Set<{ proceed(): void }>();
  let victims: Victims | null = null;
  /** The master before the faults of this strike; null between strikes. */
  let masterBefore: number | null = null;
  /** Servers that were asked to end and are still running. */
  const ending = new Set<Index>();

  /** The server's report of its replication; empty if it does not answer. */
  async function replicationOf(server: Index): Promise<string> {
    if (redis.hasEnded(server)) return "";
    const link = new Redis(redis.ports[server], "127.0.0.1", {
      lazyConnect: true,
      commandTimeout: 500,
      connectTimeout: 500,
      retryStrategy: () => null,
      maxRetriesPerRequest: 0,
    });
    link.on("error", () => undefined);
    try {
      await link.connect();
      return await link.info("replication");
    } catch {
      // it is stopped or has just ended, and so does not answer
      return "";
    } finally {
      link.disconnect();
    }
  }

  /** The master, or the server that would be the master: the one that does not report to be a replica. */
  async function master(): Promise<Index> {
    return /role:slave/.test(await replicationOf(0)) ? 1 : 0;
  }

  const wrapper = (): RunningProcess | null => victims?.pickVictim() ?? null;

  async function stopServer(): Promise<boolean> {
    const server = await master();
    redis.signal(server, "SIGSTOP");
    stopped.add({ proceed: () => redis.signal(server, "SIGCONT") });
    return true;
  }

  function stopWrapper(): boolean {
    const run = wrapper();
    if (run === null) return false;
    run.process.kill("SIGSTOP");
    stopped.add({ proceed: () => void run.process.kill("SIGCONT") });
    return true;
  }

  /** Ends connections of this kind at both servers. */
  async function killConnections(type: "normal" | "pubsub"): Promise<boolean> {
    for (const server of SERVERS) {
      if (redis.hasEnded(server)) continue;
      // a stopped server answers when it continues
      void redis.admin[server].call("CLIENT", "KILL", "TYPE", type).catch(() => undefined);
    }
    await delay(20);
    return true;
  }

  async function restart(): Promise<boolean> {
    const server = await master();
    if (!redis.hasEnded(server)) redis.signal(server, "SIGTERM");
    const end = until(() => redis.hasEnded(server), { within: 1_000, what: "its end" });
    // a server that is stopped, or whose disk is full, may take until the repair
    const hasEnded = await end.then(
      () => true,
      () => false,
    );
    if (hasEnded) await redis.start(server).catch(() => undefined);
    else ending.add(server);
    return true;
  }

  /**
   * Asks for a fail-over. If the other fault took the master away, the Sentinels may have promoted the replica by
   * themselves before the request. Then there is no second replica for another fail-over, but this one has happened.
   */
  async function failOver(): Promise<boolean> {
    return (await redis.failOver()) || (await redis.masterPort()) !== masterBefore;
  }

  const faults: Record<FaultName, () => boolean | Promise<boolean>> = {
    "kill wrapper": () => {
      const run = wrapper();
      run?.kill();
      return run !== null;
    },
    "kill server": async () => {
      await redis.kill(await master());
      return true;
    },
    restart,
    "stop and continue": () => (random.chance(0.5) ? stopWrapper() : stopServer()),
    cut: () => killConnections("normal"),
    "cut subscribers": () => killConnections("pubsub"),
    "fail over": failOver,
    "full disk": async () => {
      disks[await master()].fill();
      return true;
    },
  };

  const repairs: readonly (() => void)[] = [
    () => {
      for (const process of stopped) process.proceed();
      stopped.clear();
    },
    () => disks[0].clear(),
    () => disks[1].clear(),
  ];

  /** One is the master, as the Sentinels know, and the other has all of its data. */
  async function isWhole(): Promise<boolean> {
    for (const server of SERVERS) if (redis.hasEnded(server)) await redis.start(server);
    const reports = [await replicationOf(0), await replicationOf(1)];
    const masterIndex = reports.findIndex((text) => /state=online/.test(text));
    return (
      reports.some((text) => /master_link_status:up/.test(text)) &&
      redis.ports[masterIndex] === (await redis.masterPort())
    );
  }

  const sentinels = redis.sentinels.map(({ port }) => `127.0.0.1:${port}`).join(",");
  return {
    name: "Redis with Sentinels",
    clients: {
      url: `redis+sentinel://${sentinels}/${redis.name}?replicas=1`,
      leaseFlags: ["--ttl", "2s", "--grace", "900ms"],
    },
    strike: (workload) => {
      victims = workload;
    },
    async inject(fault) {
      masterBefore ??= await redis.masterPort();
      return faults[fault]();
    },
    async heal() {
      for (const repair of shuffle(repairs, random)) {
        repair();
        await delay(random.int(100));
      }
      for (const server of ending) await until(() => redis.hasEnded(server), { within: 20_000, what: "its end" });
      ending.clear();
      await until(isWhole, { within: 40_000, what: "a master with its replica after the repair" });
      masterBefore = null;
    },
    close: () => redis.stop(),
  };
}
