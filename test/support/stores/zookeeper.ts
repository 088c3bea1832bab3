// Real ZooKeeper servers for tests: installed from Debian where they are missing, started on free ports, ended by pid.

import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../src/testing/until.ts";
import { endWithParent } from "../../../src/torture/processes/end-with-parent.ts";
import { freePorts } from "../../../src/torture/processes/free-port.ts";
import {
  ensembleLines,
  JAVA_OPTIONS,
  ZOOKEEPER_JAR,
  ZOOKEEPER_MAIN,
  zooKeeperLines,
} from "../../../src/torture/stores/zookeeper.ts";
import type { Certificate } from "../certificates.ts";
import { installPackages } from "../debian-packages.ts";

const PACKAGES = ["libzookeeper-java", "libnetty-java", "default-jre-headless"];
const START_MS = 50_000;
const COMMAND_TIMEOUT_MS = 1_000;

export type ZooKeeperServer = {
  readonly address: { readonly host: string; readonly port: number };
  /** Where it takes TLS, if it does. */
  readonly secureAddress: { readonly host: string; readonly port: number };
  readonly pid: number;
  /** What a four-letter command answers. */
  runCommand(command: string): Promise<string>;
  /** Ends it with this signal and waits for its end. Its data stay. */
  stop(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again on the same port with the same data. */
  start(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

export type ServerOptions = {
  /** Each write is synced to the disk, as servers do as they come. Default false: a busy disk would end sessions. */
  readonly isSynced?: boolean;
  /** Of the Java process, besides the usual ones. */
  readonly properties?: Readonly<Record<string, string>>;
  /** How often empty containers are looked for and removed, in milliseconds. Default: a minute. */
  readonly reapMs?: number;
  /** Takes TLS on a second port, and knows these users by SASL; there it lets only those in whom this issuer vouches for. */
  readonly secure?: {
    readonly certificate: Certificate;
    readonly users: Readonly<Record<string, string>>;
    readonly clientIssuer?: string;
  };
};

/** One server of its own, its sessions from 1 to 40 s long. */
export async function startZooKeeper(options: ServerOptions = {}): Promise<ZooKeeperServer> {
  installZooKeeper();
  const [port = 0, securePort = 0] = await freePorts(options.secure === undefined ? 1 : 2);
  return startServer(port, securePort, [], options);
}

/** Several servers that are one store; each is started and ended by itself. */
export type Ensemble = {
  readonly servers: readonly ZooKeeperServer[];
  readonly addresses: readonly { readonly host: string; readonly port: number }[];
  /** Waits until one of the servers that answer leads, and gives it. */
  leader(): Promise<ZooKeeperServer>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Three servers; any two of them go on. */
export async function startEnsemble(options: ServerOptions = {}): Promise<Ensemble> {
  installZooKeeper();
  const ports = await freePorts(9);
  const config = ensembleLines(ports.slice(3, 6), ports.slice(6));
  const servers = await Promise.all(
    [0, 1, 2].map((index) => startServer(ports[index] as number, 0, config, options, index + 1)),
  );
  const leads = async (server: ZooKeeperServer): Promise<ZooKeeperServer | null> =>
    (await server.runCommand("srvr").catch(() => "")).includes("Mode: leader") ? server : null;
  return {
    servers,
    addresses: servers.map(({ address }) => address),
    leader: () =>
      until(async () => (await Promise.all(servers.map(leads))).find((zooKeeperServer) => zooKeeperServer !== null), {
        within: START_MS,
        what: "a leader",
      }),
    async [Symbol.asyncDispose]() {
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    },
  };
}

async function startServer(
  port: number,
  securePort: number,
  members: readonly string[],
  { reapMs = 60_000, secure, isSynced = false, properties = {} }: ServerOptions,
  id = 1,
): Promise<ZooKeeperServer> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-zk-"));
  const config = join(folder, "zoo.cfg");
  writeFileSync(join(folder, "myid"), `${id}`);
  const lines = [...zooKeeperLines(folder, port), "maxSessionTimeout=40000", ...members];
  const options = [
    ...JAVA_OPTIONS,
    `-Dznode.container.checkIntervalMs=${reapMs}`,
    ...Object.entries(properties).map(([name, value]) => `-D${name}=${value}`),
    // what was written outlives the process all the same
    ...(isSynced ? [] : ["-Dzookeeper.forceSync=no"]),
  ];
  if (secure !== undefined) {
    lines.push(...secureConfigLines(folder, securePort, secure));
    options.push(`-Djava.security.auth.login.config=${join(folder, "jaas.conf")}`);
  }
  writeFileSync(config, lines.join("\n"));
  const classPath = secure === undefined ? ZOOKEEPER_JAR : [ZOOKEEPER_JAR, ...NETTY_JARS].join(":");
  let child: ChildProcess | null = null;

  async function start(): Promise<void> {
    const [program = "", ...args] = endWithParent(["java", ...options, "-cp", classPath, ZOOKEEPER_MAIN, config]);
    child = spawn(program, args, { stdio: "ignore" });
    await until(async () => (await runFourLetterCommand(port, "srvr").catch(() => "")).includes("Mode:"), {
      within: START_MS,
      what: "ZooKeeper to answer",
    });
  }

  async function stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const stoppedChild = child;
    child = null;
    if (stoppedChild === null || stoppedChild.exitCode !== null) return;
    const exit = new Promise((resolve) => stoppedChild.once("exit", resolve));
    stoppedChild.kill(signal);
    await exit;
  }

  await start();
  return {
    address: { host: "127.0.0.1", port },
    secureAddress: { host: "127.0.0.1", port: securePort },
    get pid() {
      return child?.pid ?? 0;
    },
    runCommand: (command) => runFourLetterCommand(port, command),
    stop,
    start,
    async [Symbol.asyncDispose]() {
      await stop("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The Netty of Debian is in several jars, which the server's own does not name. */
const NETTY_JARS = [
  "buffer",
  "codec",
  "common",
  "handler",
  "resolver",
  "transport",
  "transport-native-unix-common",
].map((part) => `/usr/share/java/netty-${part}.jar`);

function secureConfigLines(
  folder: string,
  port: number,
  { certificate, users, clientIssuer }: NonNullable<ServerOptions["secure"]>,
): string[] {
  const [both, trusted] = [join(folder, "both.pem"), join(folder, "trusted.pem")];
  writeFileSync(both, certificate.key + certificate.cert, { mode: 0o600 });
  writeFileSync(trusted, clientIssuer ?? certificate.cert);
  const userLines = Object.entries(users).map(([user, password]) => `user_${user}="${password}"`);
  writeFileSync(
    join(folder, "jaas.conf"),
    `Server { org.apache.zookeeper.server.auth.DigestLoginModule required ${userLines.join(" ")}; };\n`,
    { mode: 0o600 },
  );
  return [
    "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
    `secureClientPort=${port}`,
    `ssl.keyStore.location=${both}`,
    "ssl.keyStore.type=PEM",
    `ssl.trustStore.location=${trusted}`,
    "ssl.trustStore.type=PEM",
    `ssl.clientAuth=${clientIssuer === undefined ? "none" : "need"}`,
    "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
  ];
}

export function installZooKeeper(): void {
  const hasJava = spawnSync("java", ["-version"]).status === 0;
  if (existsSync(ZOOKEEPER_JAR) && hasJava) return;
  installPackages(PACKAGES, "the ZooKeeper tests");
}

function runFourLetterCommand(port: number, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connect({ host: "127.0.0.1", port }, () => socket.end(command));
    // one that is just starting may take a connection and forget it
    socket.setTimeout(COMMAND_TIMEOUT_MS, () => socket.destroy(new Error(`no answer to ${command}`)));
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(text));
  });
}
