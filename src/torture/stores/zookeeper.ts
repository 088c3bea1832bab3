/** A ZooKeeper server, from the jar of Debian's package. */

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { firstAnswer, startOnFreePort } from "../processes/database-process.ts";
import { versionOf } from "./programs.ts";
import type { StartedStore } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

const JAR = "/usr/share/java/zookeeper.jar";
const MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const SESSION_MS = 2_000;

export async function startZooKeeper(directory: string): Promise<StartedStore> {
  versionOf("java", ["-version"]);
  if (!existsSync(JAR)) throw new Error(`${JAR} is not installed: torture uses the program of this system`);
  const config = join(directory, "zoo.cfg");
  const { port, process: server } = await startOnFreePort((port) => {
    const lines = [
      ...["tickTime=500", `dataDir=${directory}`, `clientPort=${port}`, "clientPortAddress=127.0.0.1"],
      ...["admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0"],
    ];
    writeFileSync(config, lines.join("\n"));
    const options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.extendedTypesEnabled=true"];
    return {
      name: "ZooKeeper",
      command: ["java", ...options, "-cp", JAR, MAIN, config],
      log: join(directory, "log"),
      environment: {},
      stopSignal: "SIGTERM",
      faults: /OutOfMemoryError/g,
      isReady: async () => (await ask(port)).includes("Mode:"),
    };
  });
  const version = /version: ([\d.]+)/.exec(await ask(port))?.[1] ?? "";
  return {
    name: `ZooKeeper ${version}`,
    url: `zookeeper://127.0.0.1:${port}?sessionMs=${SESSION_MS}`,
    inject: injectInto(server),
    close: () => server.crash(),
  };
}

async function ask(port: number): Promise<string> {
  return (await firstAnswer(port, Buffer.from("srvr"))).toString();
}
