/** ZooKeeper, from the jar of Debian's package: one server, or three that are one store. */

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DatabaseProcess } from "../processes/database-process.ts";
import { createDatabaseProcess, firstAnswer } from "../processes/database-process.ts";
import { freePorts } from "../processes/free-port.ts";
import { versionOf } from "./programs.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectInto, injectIntoServer } from "./store-process.ts";

export const ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar";
export const ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/** Of its Java process. */
export const JAVA_OPTIONS: readonly string[] = [
  ...["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.extendedTypesEnabled=true"],
];
const [SESSION_MS, CLUSTER_SESSION_MS] = [2_000, 4_000];

/** Lines of the configuration of every server. */
export function zooKeeperLines(dataDirectory: string, port: number): readonly string[] {
  return [
    ...["tickTime=500", `dataDir=${dataDirectory}`, `clientPort=${port}`, "clientPortAddress=127.0.0.1"],
    ...["admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0"],
  ];
}

/** Further lines of servers that are one store: they reach each other at these ports, and elect their leader at those. */
export function ensembleLines(peerPorts: readonly number[], electionPorts: readonly number[]): readonly string[] {
  const members = peerPorts.map((port, index) => `server.${index + 1}=127.0.0.1:${port}:${electionPorts[index]}`);
  return ["initLimit=20", "syncLimit=10", ...members];
}

export async function startZooKeeper({ directory }: StoreSetup): Promise<StartedStore> {
  requirePrograms();
  const [port = 0] = await freePorts(1);
  const server = createServer(directory, port, 1, []);
  await server.start();
  const name = `ZooKeeper ${await readVersion(port)}`;
  return {
    ...{ name, url: `zookeeper://127.0.0.1:${port}?sessionMs=${SESSION_MS}` },
    faults: ["store-kill", "store-restart", "store-pause"],
    inject: injectIntoServer(name, server),
    close: () => server.crash(),
  };
}

export async function startZooKeeperEnsemble({ directory }: StoreSetup): Promise<StartedStore> {
  requirePrograms();
  const ports = await freePorts(3);
  const lines = ensembleLines(await freePorts(3), await freePorts(3));
  const servers = ports.map((port, index) => createServer(join(directory, String(index)), port, index + 1, lines));
  await Promise.all(servers.map((server) => server.start()));
  const name = `ZooKeeper ${await readVersion(ports[0] as number)} with three members`;
  return {
    name,
    url: `zookeeper://${ports.map((port) => `127.0.0.1:${port}`).join(",")}?sessionMs=${CLUSTER_SESSION_MS}`,
    faults: ["store-kill", "store-restart", "store-pause"],
    inject: injectInto({
      name,
      servers: servers as [DatabaseProcess, ...DatabaseProcess[]],
      async findLeader() {
        for (const [index, port] of ports.entries())
          if ((await ask(port)).includes("Mode: leader")) return servers[index] as DatabaseProcess;
        return null;
      },
      async isWhole() {
        for (const port of ports) if (!(await isServing(port))) return false;
        return true;
      },
    }),
    close: async () => void (await Promise.all(servers.map((server) => server.crash()))),
  };
}

function requirePrograms(): void {
  versionOf("java", ["-version"]);
  if (!existsSync(ZOOKEEPER_JAR))
    throw new Error(`${ZOOKEEPER_JAR} is not installed: torture uses the program of this system`);
}

function createServer(directory: string, port: number, id: number, lines: readonly string[]): DatabaseProcess {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const config = join(directory, "zoo.cfg");
  writeFileSync(config, [...zooKeeperLines(directory, port), ...lines].join("\n"));
  writeFileSync(join(directory, "myid"), String(id));
  return createDatabaseProcess({
    name: "ZooKeeper",
    command: ["java", ...JAVA_OPTIONS, "-cp", ZOOKEEPER_JAR, ZOOKEEPER_MAIN, config],
    log: join(directory, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /OutOfMemoryError/g,
    isReady: () => isServing(port),
  });
}

async function isServing(port: number): Promise<boolean> {
  return (await ask(port)).includes("Mode:");
}

async function readVersion(port: number): Promise<string> {
  return /version: ([\d.]+)/.exec(await ask(port))?.[1] ?? "";
}

async function ask(port: number): Promise<string> {
  return (await firstAnswer(port, Buffer.from("srvr"))).toString();
}
