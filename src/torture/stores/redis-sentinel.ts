/** A Redis master with a replica, which three Sentinels watch. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../testing/until.ts";
import type { DatabaseProcess } from "../processes/database-process.ts";
import { createDatabaseProcess } from "../processes/database-process.ts";
import { freePort } from "../processes/free-port.ts";
import type { RedisProcess } from "./redis-process.ts";
import {
  askRedis,
  askReplication,
  createRedisProcess,
  isAnswering,
  REDIS_PROGRAM,
  redisVersion,
  tellRedis,
} from "./redis-process.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

/** What Sentinels call their master. */
export const MASTER_NAME = "mymaster";
export const SENTINEL_COUNT = 3;
const DOWN_AFTER_MS = 1_000;
const START_MS = 60_000;
/** As replicas and Sentinels are configured for each other, so that a fail-over takes seconds. */
const FAILOVER_TIMEOUT_MS = 3_000;
/** A replica whose INFO is older than five pings is not promoted, and while its master is down it is asked once a second. */
export const SENTINEL_PERIODS: readonly string[] = [
  ...["info-period", "200", "publish-period", "200", "ping-period", "300", "ask-period", "100"],
];

export interface SentinelPlace {
  readonly index: number;
  readonly directory: string;
  readonly port: number;
  readonly masterPort: number;
  readonly downAfterMs: number;
}

/** The first content of a configuration file: the Sentinel adds its state to it. */
export function sentinelConfiguration({ index, directory, port, masterPort, downAfterMs }: SentinelPlace): string {
  // the last one only votes: if all stood for election at once, each would vote for itself, again and again
  const patienceMs = index < SENTINEL_COUNT - 1 ? downAfterMs : downAfterMs + 60_000;
  return [
    ...[`port ${port}`, "bind 127.0.0.1", `logfile ${join(directory, "log")}`, `dir ${directory}`],
    `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${masterPort} 2`,
    `sentinel down-after-milliseconds ${MASTER_NAME} ${patienceMs}`,
    `sentinel failover-timeout ${MASTER_NAME} ${FAILOVER_TIMEOUT_MS}`,
  ].join("\n");
}

/** A Sentinel knows the replica, and the other Sentinels. */
export async function knowsAll(sentinelPort: number): Promise<boolean> {
  const reply = await askRedis(sentinelPort, "SENTINEL", "MASTER", MASTER_NAME);
  return hasPair(reply, "num-slaves", "1") && hasPair(reply, "num-other-sentinels", String(SENTINEL_COUNT - 1));
}

/** Has the Sentinels promote the replica. False: they refuse just now. */
export async function failOverBySentinel(sentinelPort: number): Promise<boolean> {
  return (await askRedis(sentinelPort, "SENTINEL", "FAILOVER", MASTER_NAME)).startsWith("+OK");
}

/** The port of the master as a Sentinel knows it. */
export async function askMasterPort(sentinelPort: number): Promise<number> {
  return Number(textsOf(await askRedis(sentinelPort, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME))[1]);
}

export async function startRedisSentinel({ directory }: StoreSetup): Promise<StartedStore> {
  const version = redisVersion();
  // a grant counts only when the replica has it: with all replicas the guide promises that a fail-over loses none
  const url = (ports: readonly number[]): string =>
    `redis+sentinel://${ports.map((port) => `127.0.0.1:${port}`).join(",")}/${MASTER_NAME}?replicas=1`;
  const master = await createServer(directory, 0, null);
  const replica = await createServer(directory, 1, master.port);
  const servers = [master, replica];
  const sentinels: { readonly port: number; readonly process: DatabaseProcess }[] = [];
  for (const { process } of servers) await process.start();
  await until(() => isOnline(servers), { within: START_MS, what: "the replica of Redis" });
  for (let index = 0; index < SENTINEL_COUNT; index++)
    sentinels.push(await startSentinel(join(directory, `sentinel${index}`), index, master.port));
  const ports = sentinels.map(({ port }) => port);
  for (const port of ports) await until(() => knowsAll(port), { within: START_MS, what: "the Sentinels" });
  const findMaster = async (): Promise<RedisProcess | undefined> => {
    const masterPort = await askMasterPort(ports[0] as number);
    return servers.find(({ port }) => port === masterPort);
  };
  const name = `Redis ${version} with three Sentinels and one replica to wait for`;
  return {
    ...{ name, url: url(ports), faults: ["store-kill", "store-restart", "store-pause", "store-fail-over"] },
    inject: injectInto({
      name,
      servers: [master.process, replica.process],
      findLeader: async () => (await findMaster())?.process ?? null,
      /** One is the master, as the Sentinels know, and the other one has all of its data. */
      async isWhole() {
        if (!(await isOnline(servers))) return false;
        const known = await findMaster();
        return known !== undefined && /state=online/.test(await askReplication(known.port));
      },
      failOver: () => failOverBySentinel(ports[0] as number),
    }),
    close: async () => void (await Promise.all([...servers, ...sentinels].map(({ process }) => process.crash()))),
  };
}

/** The Sentinels have each server write down whom it follows: so one that is started again is what it was. */
function createServer(directory: string, index: number, masterPort: number | null): Promise<RedisProcess> {
  const file = join(directory, `redis${index}.conf`);
  writeFileSync(file, masterPort === null ? "" : `replicaof 127.0.0.1 ${masterPort}\n`, { mode: 0o600 });
  return createRedisProcess(join(directory, String(index)), [], file);
}

async function startSentinel(
  directory: string,
  index: number,
  masterPort: number,
): Promise<{ readonly port: number; readonly process: DatabaseProcess }> {
  mkdirSync(directory, { mode: 0o700 });
  const port = await freePort();
  const file = join(directory, "sentinel.conf");
  writeFileSync(file, sentinelConfiguration({ index, directory, port, masterPort, downAfterMs: DOWN_AFTER_MS }));
  const process = createDatabaseProcess({
    name: "a Sentinel",
    command: [REDIS_PROGRAM, file, "--sentinel"],
    log: join(directory, "output"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /REDIS BUG REPORT/g,
    isReady: () => isAnswering(port),
  });
  await process.start();
  await tellRedis(port, "SENTINEL", "DEBUG", ...SENTINEL_PERIODS);
  return { port, process };
}

async function isOnline(servers: readonly RedisProcess[]): Promise<boolean> {
  for (const { port } of servers) if (/master_link_status:up/.test(await askReplication(port))) return true;
  return false;
}

/** The texts of an answer that is a list of them. */
function textsOf(answer: string): readonly string[] {
  return [...answer.matchAll(/\$\d+\r\n(.*)\r\n/g)].map(([, text]) => text as string);
}

function hasPair(answer: string, name: string, value: string): boolean {
  const texts = textsOf(answer);
  return texts[texts.indexOf(name) + 1] === value;
}
