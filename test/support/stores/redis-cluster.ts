/** A real Redis Cluster for tests: masters, each with a replica if wanted, on free ports, ended by their pids. */

import type { ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { until } from "../../../src/testing/until.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { signalChild } from "../../../src/torture/processes/process-tree.ts";
import { clusterArguments, formCluster } from "../../../src/torture/stores/redis-cluster.ts";
import type { CertificateFiles } from "../certificates.ts";
import { installRedis, killAndCheckLog, startRedisProcess, throwOnViolations, tlsArguments } from "./redis.ts";
import { inspectRedisServer } from "./redis-inspector.ts";

/** A replica that was told to take over gives it up after five seconds, if it was not elected. */
const FAILOVER_MS = 5_500;

export interface RedisCluster {
  readonly ports: readonly number[];
  /** Those over TLS, if it speaks that. */
  readonly tlsPorts: readonly number[];
  /** A connection to each node, to look and to administrate. */
  readonly admin: readonly Redis[];
  /** The node that is master of a slot now. */
  masterOf(slot: number): Promise<number>;
  /** Moves a slot with its keys; `between`: done while it is half-way, before the first key and after each. */
  move(slot: number, to: number, between?: () => Promise<unknown>): Promise<void>;
  /** The other one of a master and its replica takes over, the master consenting. */
  failOver(master: number): Promise<void>;
  /** Ends a node as `kill -9` does. */
  kill(node: number): Promise<void>;
  /** Ends it likewise, if need be, and starts it again: empty, but with its name, and its slots if nobody took them. */
  restart(node: number): Promise<void>;
  /** SIGSTOP, SIGCONT. */
  signal(node: number, name: NodeJS.Signals): void;
  stop(): Promise<void>;
}

type SlotRange = readonly [from: number, to: number, master: readonly [host: string, port: number]];

interface ClusterNode {
  readonly port: number;
  readonly busPort: number;
  readonly tlsPort: number;
  /** What the nodes reach each other by. */
  readonly among: number;
  child: ChildProcess;
  readonly restarted: () => Promise<ChildProcess>;
  readonly admin: Redis;
  readonly id: string;
}

interface ClusterOptions {
  /** It speaks TLS, too, also among its nodes. */
  readonly tls?: CertificateFiles;
  /** Further arguments of redis-server. */
  readonly settings?: readonly string[];
}

export async function startRedisCluster(
  masters: number,
  withReplicas = false,
  clusterOptions: ClusterOptions = {},
): Promise<RedisCluster> {
  installRedis();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-cluster-"));
  const count = withReplicas ? 2 * masters : masters;
  const nodes = await Promise.all(
    Array.from({ length: count }, (_, index) => startNode(join(folder, String(index)), clusterOptions)),
  );
  await formCluster(nodes, masters);
  return createCluster(nodes, masters, folder);
}

async function startNode(folder: string, { tls, settings = [] }: ClusterOptions): Promise<ClusterNode> {
  mkdirSync(folder);
  const [port, busPort, tlsPort] = [await freePort(), await freePort(), await freePort()];
  const encrypted = tls === undefined ? [] : [...tlsArguments(tlsPort, tls), "--tls-cluster", "yes"];
  const restarted = (): Promise<ChildProcess> =>
    startRedisProcess(folder, port, [...clusterArguments(busPort), ...encrypted, ...settings]);
  const child = await restarted();
  const admin = new Redis(port, "127.0.0.1", { retryStrategy: () => 100 });
  admin.on("error", () => undefined);
  return {
    port,
    busPort,
    tlsPort,
    among: tls === undefined ? port : tlsPort,
    child,
    restarted,
    admin,
    id: String(await admin.cluster("MYID")),
  };
}

function createCluster(nodes: readonly ClusterNode[], masters: number, folder: string): RedisCluster {
  const deadNodes = new Set<number>();
  const nodeAt = (index: number): ClusterNode => nodes[index] as ClusterNode;
  const masterOf = async (slot: number): Promise<number> => {
    for (const [index, { admin }] of nodes.entries()) {
      if (deadNodes.has(index)) continue;
      for (const [from, to, [, port]] of (await admin.cluster("SLOTS")) as unknown as SlotRange[]) {
        if (from <= slot && slot <= to) return nodes.findIndex((node) => node.port === port);
      }
    }
    throw new Error(`nobody has slot ${slot}`);
  };
  return {
    ports: nodes.map(({ port }) => port),
    tlsPorts: nodes.map(({ tlsPort }) => tlsPort),
    admin: nodes.map(({ admin }) => admin),
    masterOf,
    async move(slot, to, duringMove) {
      const from = await masterOf(slot);
      if (from === to) return;
      const [source, target] = [nodeAt(from), nodeAt(to)];
      await target.admin.call("CLUSTER", "SETSLOT", String(slot), "IMPORTING", source.id);
      await source.admin.call("CLUSTER", "SETSLOT", String(slot), "MIGRATING", target.id);
      await duringMove?.();
      for (;;) {
        const keys = (await source.admin.call("CLUSTER", "GETKEYSINSLOT", String(slot), "1000")) as string[];
        // the shortest first: the key that calls are routed by is there before what it stands for
        const [key] = keys.sort((one, other) => one.length - other.length);
        if (key === undefined) break;
        await source.admin.call("MIGRATE", "127.0.0.1", String(target.among), "", "0", "5000", "KEYS", key);
        await duringMove?.();
      }
      for (const { admin } of [target, source, ...nodes.slice(0, masters)]) {
        await admin.call("CLUSTER", "SETSLOT", String(slot), "NODE", target.id);
      }
    },
    async failOver(master) {
      const { admin } = nodeAt((master + masters) % nodes.length);
      let toldAt = Number.NEGATIVE_INFINITY;
      const isMaster = async (): Promise<boolean> => {
        if (/role:master/.test(await admin.info("replication"))) return true;
        if (performance.now() < toldAt + FAILOVER_MS) return false;
        toldAt = performance.now();
        await admin.cluster("FAILOVER");
        return false;
      };
      await until(isMaster, { within: 3 * FAILOVER_MS, what: "the replica as master" });
    },
    async kill(index) {
      deadNodes.add(index);
      await killAndCheckLog(nodeAt(index).child);
    },
    async restart(index) {
      await killAndCheckLog(nodeAt(index).child);
      nodeAt(index).child = await nodeAt(index).restarted();
      deadNodes.delete(index);
    },
    signal: (index, name) => signalChild(nodeAt(index).child, name),
    async stop() {
      const violations: string[] = [];
      for (const { port, admin, child } of nodes) {
        violations.push(...(await inspectRedisServer(port, child)));
        admin.disconnect();
      }
      for (const { child } of nodes) await killAndCheckLog(child);
      rmSync(folder, { recursive: true, force: true });
      throwOnViolations(violations);
    },
  };
}
