/** A Redis Cluster of three masters, each with a replica. */

import { join } from "node:path";
import type { Random } from "../../testing/random.ts";
import { until } from "../../testing/until.ts";
import type { DatabaseProcess } from "../processes/database-process.ts";
import { freePort } from "../processes/free-port.ts";
import type { RedisProcess } from "./redis-process.ts";
import { askRedis, askReplication, createRedisProcess, redisVersion, tellRedis } from "./redis-process.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

const SLOTS = 16_384;
const MASTERS = 3;
const START_MS = 60_000;

/** Arguments of a node, which the others reach at this port. */
export function clusterArguments(busPort: number): readonly string[] {
  return [
    ...["--cluster-enabled", "yes", "--cluster-port", String(busPort), "--cluster-node-timeout", "1000"],
    ...["--cluster-replica-validity-factor", "0"],
  ];
}

export interface ClusterAddress {
  readonly port: number;
  readonly busPort: number;
}

/** Makes a Cluster of running nodes: the first ones are the masters, each of the others is the replica of one. */
export async function formCluster(nodes: readonly ClusterAddress[], masters: number): Promise<void> {
  const [first] = nodes as readonly [ClusterAddress, ...ClusterAddress[]];
  for (const [index, { port }] of nodes.entries()) {
    await tellRedis(port, "CLUSTER", "SET-CONFIG-EPOCH", String(index + 1));
    if (index > 0) await tellRedis(port, "CLUSTER", "MEET", "127.0.0.1", `${first.port}`, `${first.busPort}`);
    if (index >= masters) continue;
    const [from, to] = [Math.floor((index * SLOTS) / masters), Math.floor(((index + 1) * SLOTS) / masters) - 1];
    await tellRedis(port, "CLUSTER", "ADDSLOTSRANGE", String(from), String(to));
  }
  const isJoined = async (): Promise<boolean> => {
    for (const { port } of nodes) if (!(await isComplete(port, nodes.length))) return false;
    return true;
  };
  await until(isJoined, { within: START_MS, what: "the Cluster" });
  for (const [index, { port }] of nodes.slice(masters).entries()) {
    const id = textOf(await askRedis((nodes[index % masters] as ClusterAddress).port, "CLUSTER", "MYID"));
    await tellRedis(port, "CLUSTER", "REPLICATE", id);
  }
  const areOnline = async (): Promise<boolean> => (await findReplicas(nodes)).length === nodes.length - masters;
  await until(areOnline, { within: START_MS, what: "the replicas of the Cluster" });
}

/** Those that are connected to their masters. */
async function findReplicas<T extends { readonly port: number }>(nodes: readonly T[]): Promise<T[]> {
  const reports = await Promise.all(nodes.map(({ port }) => askReplication(port)));
  return nodes.filter((_, index) => /master_link_status:up/.test(reports[index] as string));
}

async function isComplete(port: number, count: number): Promise<boolean> {
  const info = await askRedis(port, "CLUSTER", "INFO");
  const signs = ["cluster_state:ok", `cluster_slots_ok:${SLOTS}`, `cluster_known_nodes:${count}`];
  return signs.every((sign) => info.includes(`${sign}\r\n`));
}

export async function startRedisCluster({ directory }: StoreSetup): Promise<StartedStore> {
  const version = redisVersion();
  const nodes: (RedisProcess & ClusterAddress)[] = [];
  for (let index = 0; index < 2 * MASTERS; index++) {
    const busPort = await freePort();
    // each master keeps the replica that its grants wait for
    const settings = [...clusterArguments(busPort), "--cluster-allow-replica-migration", "no"];
    const node = await createRedisProcess(join(directory, String(index)), settings);
    await node.process.start();
    nodes.push({ ...node, busPort });
  }
  await formCluster(nodes, MASTERS);
  const name = `Redis Cluster ${version} with three masters, each with one replica to wait for`;
  const processAt = (port: number): DatabaseProcess =>
    (nodes.find((node) => node.port === port) as RedisProcess).process;
  return {
    name,
    // a grant counts only when the replica has it: with all replicas the guide promises that a fail-over loses none
    url: `redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(",")}?replicas=1`,
    faults: ["store-kill", "store-restart", "store-pause", "store-fail-over"],
    inject: injectInto({
      name,
      servers: nodes.map(({ process }) => process) as [DatabaseProcess, ...DatabaseProcess[]],
      async findLeader() {
        for (const { port } of nodes) if (/role:master/.test(await askReplication(port))) return processAt(port);
        return null;
      },
      async isWhole() {
        for (const { port } of nodes) if (!(await isComplete(port, nodes.length))) return false;
        return (await findReplicas(nodes)).length === nodes.length - MASTERS;
      },
      failOver: (random) => failOver(nodes, random),
    }),
    close: async () => void (await Promise.all(nodes.map(({ process }) => process.crash()))),
  };
}

/** A replica takes over, its master consenting. */
async function failOver(nodes: readonly RedisProcess[], random: Random): Promise<boolean> {
  const replicas = await findReplicas(nodes);
  if (replicas.length === 0) return false;
  const { port } = random.pick(replicas as [RedisProcess, ...RedisProcess[]]);
  return (await askRedis(port, "CLUSTER", "FAILOVER")).startsWith("+OK");
}

/** Of an answer that is one text. */
function textOf(answer: string): string {
  return answer.split("\r\n")[1] ?? "";
}
