/** A real master with a replica that three Sentinels watch, on free ports, ended by their pids. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { until } from "../../../src/testing/until.ts";
import { endWithParent } from "../../../src/torture/processes/end-with-parent.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { signalChild } from "../../../src/torture/processes/process-tree.ts";
import { REDIS_PROGRAM, tellRedis } from "../../../src/torture/stores/redis-process.ts";
import type { SentinelPlace } from "../../../src/torture/stores/redis-sentinel.ts";
import {
  askMasterPort,
  failOverBySentinel,
  knowsAll,
  MASTER_NAME,
  SENTINEL_COUNT,
  SENTINEL_PERIODS,
  sentinelConfiguration,
} from "../../../src/torture/stores/redis-sentinel.ts";
import type { CertificateFiles } from "../certificates.ts";
import {
  hasEnded,
  installRedis,
  isUp,
  killAndCheckLog,
  startRedisProcess,
  throwOnViolations,
  tlsArguments,
} from "./redis.ts";
import { inspectRedisServer } from "./redis-inspector.ts";

export interface RedisSentinels {
  /** What the Sentinels call their master. */
  readonly name: string;
  readonly sentinels: readonly { readonly host: string; readonly port: number; readonly tlsPort: number }[];
  /** The servers: the first is the master to begin with. */
  readonly ports: readonly [number, number];
  readonly admin: readonly [Redis, Redis];
  /** Ends a server as `kill -9` does. */
  kill(server: number): Promise<void>;
  /** Starts a server that has ended again, on its port, in its folder. */
  start(server: number): Promise<void>;
  /** Has it ended, by whatever cause? */
  hasEnded(server: number): boolean;
  /** Sends a server a signal. */
  signal(server: number, name: NodeJS.Signals): void;
  /** Has the Sentinels promote the replica. False: they refuse just now. */
  failOver(): Promise<boolean>;
  /** The port of the master as the first Sentinel knows it. */
  masterPort(): Promise<number>;
  stop(): Promise<void>;
}

interface SentinelOptions {
  /** All speak TLS, too, and among each other nothing else. */
  readonly tls?: CertificateFiles;
  /** Further arguments of the servers. */
  readonly settings?: readonly string[];
  /** Where each server keeps its data, and what is put before its command. Default: a temporary folder, nothing. */
  readonly serverPlaces?: readonly [ServerPlace, ServerPlace];
}

interface ServerPlace {
  readonly folder: string;
  readonly commandPrefix: readonly string[];
}

export async function startRedisSentinels(
  downAfterMs: number,
  sentinelOptions: SentinelOptions = {},
): Promise<RedisSentinels> {
  installRedis();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-sentinel-"));
  const { tls, settings = [] } = sentinelOptions;
  const [master, replica] = [await freePort(), await freePort()];
  const [masterTls, replicaTls] = [await freePort(), await freePort()];
  const encrypted = (port: number): readonly string[] =>
    tls === undefined ? settings : [...settings, ...tlsArguments(port, tls), "--tls-replication", "yes"];
  const monitoredMaster = tls === undefined ? master : masterTls;
  const addressOf = (name: string): string => {
    mkdirSync(join(folder, name));
    return join(folder, name);
  };
  const serverPlaces = sentinelOptions.serverPlaces ?? [
    { folder: addressOf("0"), commandPrefix: [] },
    { folder: addressOf("1"), commandPrefix: [] },
  ];
  // the Sentinels have each server write down whom it follows: so one that is started again is what it was
  const files = [join(folder, "0.conf"), join(folder, "1.conf")] as const;
  writeFileSync(files[0], "");
  writeFileSync(files[1], `replicaof 127.0.0.1 ${monitoredMaster}\n`);
  const startServer = (server: 0 | 1): Promise<ChildProcess> => {
    const [port, tlsPort] = server === 0 ? [master, masterTls] : [replica, replicaTls];
    const { folder, commandPrefix } = serverPlaces[server];
    return startRedisProcess(folder, port, encrypted(tlsPort), {}, { commandPrefix, configFile: files[server] });
  };
  const servers = [await startServer(0), await startServer(1)];
  const admin = [openConnection(master), openConnection(replica)] as const;
  await until(async () => /master_link_status:up/.test(await admin[1].info("replication")), {
    within: 30_000,
    what: "the replica",
  });
  const sentinels = await Promise.all(
    Array.from({ length: SENTINEL_COUNT }, (_, index) =>
      startSentinel({ index, directory: addressOf(`s${index}`), masterPort: monitoredMaster, downAfterMs }, tls),
    ),
  );
  const sentinelPort = (sentinels[0] as RunningSentinel).port;
  for (const { port } of sentinels) await until(() => knowsAll(port), { within: 60_000, what: "the Sentinels" });
  return {
    name: MASTER_NAME,
    sentinels: sentinels.map(({ port, tlsPort }) => ({ host: "127.0.0.1", port, tlsPort })),
    ports: [master, replica],
    admin,
    kill: (server) => killAndCheckLog(servers[server] as ChildProcess),
    async start(server) {
      servers[server] = await startServer(server as 0 | 1);
    },
    hasEnded: (server) => hasEnded(servers[server] as ChildProcess),
    signal: (server, name) => signalChild(servers[server] as ChildProcess, name),
    failOver: () => failOverBySentinel(sentinelPort),
    masterPort: () => askMasterPort(sentinelPort),
    async stop() {
      const violations: string[] = [];
      for (const [index, child] of servers.entries()) {
        violations.push(...(await inspectRedisServer(index === 0 ? master : replica, child)));
      }
      for (const redis of admin) redis.disconnect();
      for (const child of [...sentinels.map((sentinel) => sentinel.child), ...servers]) await killAndCheckLog(child);
      rmSync(folder, { recursive: true, force: true });
      throwOnViolations(violations);
    },
  };
}

function openConnection(port: number): Redis {
  const redis = new Redis(port, "127.0.0.1", { retryStrategy: () => 100 });
  redis.on("error", () => undefined);
  return redis;
}

interface RunningSentinel {
  readonly port: number;
  readonly tlsPort: number;
  readonly child: ChildProcess;
}

async function startSentinel(place: Omit<SentinelPlace, "port">, tls?: CertificateFiles): Promise<RunningSentinel> {
  const [port, tlsPort] = [await freePort(), await freePort()];
  const file = join(place.directory, "sentinel.conf");
  writeFileSync(file, sentinelConfiguration({ ...place, port }));
  const encrypted = tls === undefined ? [] : [...tlsArguments(tlsPort, tls), "--tls-replication", "yes"];
  const [program = "", ...args] = endWithParent([REDIS_PROGRAM, file, "--sentinel", ...encrypted]);
  const child = spawn(program, args, { stdio: "ignore" });
  await until(() => isUp(port), { within: 30_000, what: "a Sentinel" });
  await tellRedis(port, "SENTINEL", "DEBUG", ...SENTINEL_PERIODS);
  return { port, tlsPort, child };
}
