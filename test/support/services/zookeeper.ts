// Real ZooKeeper servers for tests: installed from Debian where they are missing, started on free ports, ended by pid.

import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../wait-for.ts";

const JAR = "/usr/share/java/zookeeper.jar";
const PACKAGES = ["libzookeeper-java", "default-jre-headless"];
const START_MS = 50_000;
const ASK_MS = 1_000;

export type ZooKeeperServer = {
  readonly address: { readonly host: string; readonly port: number };
  readonly pid: number;
  /** What a four-letter command answers. */
  ask(command: string): Promise<string>;
  /** Ends it with this signal and waits for its end. Its data stay. */
  stop(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again on the same port with the same data. */
  start(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** One server of its own, its sessions from 1 to 40 s long. */
export async function startZooKeeper(): Promise<ZooKeeperServer> {
  installIfMissing();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-zk-"));
  const port = await freePort();
  const config = join(folder, "zoo.cfg");
  writeFileSync(
    config,
    [
      "tickTime=500",
      `dataDir=${folder}`,
      `clientPort=${port}`,
      "clientPortAddress=127.0.0.1",
      "admin.enableServer=false",
      "4lw.commands.whitelist=*",
      "maxClientCnxns=0",
      "maxSessionTimeout=40000",
    ].join("\n"),
  );
  let child: ChildProcess | null = null;

  async function start(): Promise<void> {
    const options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.extendedTypesEnabled=true"];
    const main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    child = spawn("java", [...options, "-cp", JAR, main, config], { stdio: "ignore" });
    await until(async () => (await ask(port, "srvr").catch(() => "")).includes("Mode:"), {
      within: START_MS,
      what: "ZooKeeper to answer",
    });
  }

  async function stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const ended = child;
    child = null;
    if (ended === null || ended.exitCode !== null) return;
    const gone = new Promise((resolve) => ended.once("exit", resolve));
    ended.kill(signal);
    await gone;
  }

  await start();
  return {
    address: { host: "127.0.0.1", port },
    get pid() {
      return child?.pid ?? 0;
    },
    ask: (command) => ask(port, command),
    stop,
    start,
    async [Symbol.asyncDispose]() {
      await stop("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function installIfMissing(): void {
  const hasJava = spawnSync("java", ["-version"]).status === 0;
  if (existsSync(JAR) && hasJava) return;
  console.log(`installing ${PACKAGES.join(" and ")} for the ZooKeeper tests`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const apt = (...args: string[]): number | null => spawnSync("apt-get", args, { env, stdio: "ignore" }).status;
  const install = ["install", "-y", "--no-install-recommends", ...PACKAGES];
  if (apt(...install) !== 0 && (apt("update") !== 0 || apt(...install) !== 0)) {
    throw new Error(`could not install ${PACKAGES.join(" and ")}: install them by hand`);
  }
}

function ask(port: number, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connect({ host: "127.0.0.1", port }, () => socket.end(command));
    // one that is just starting may take a connection and forget it
    socket.setTimeout(ASK_MS, () => socket.destroy(new Error(`no answer to ${command}`)));
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(text));
  });
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
