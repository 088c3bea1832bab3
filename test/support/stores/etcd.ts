// Real etcd servers for tests: installed from Debian where they are missing, started on free ports, ended by pid.

import type { ChildProcess } from "node:child_process";
import { execFile, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { RequestOptions } from "node:http";
import { request as requestPlainly } from "node:http";
import { request as requestSecurely } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "../../../src/testing/until.ts";
import { endWithParent } from "../../../src/torture/processes/end-with-parent.ts";
import { freePorts } from "../../../src/torture/processes/free-port.ts";
import { signalChild } from "../../../src/torture/processes/process-tree.ts";
import type { EtcdPace } from "../../../src/torture/stores/etcd.ts";
import { ALONE, etcdArguments, TOGETHER } from "../../../src/torture/stores/etcd.ts";
import type { Certificate } from "../certificates.ts";
import { canInstall, installPackages } from "../debian-packages.ts";

const PROGRAM = "etcd";
const START_MS = 30_000;
const CALL_TIMEOUT_MS = 10_000;
/** Of the etcdctl that a test runs, on a busy machine. */
const COMMAND_TIMEOUT_MS = 20_000;
const FILLER_BYTES = 1_000_000;

const runFile = promisify(execFile);

export type EtcdAddress = { readonly host: string; readonly port: number };

export type EtcdOptions = {
  /** Default 20 for one server, 100 for a cluster: a busy machine would change its leader. */
  readonly heartbeatMs?: number;
  /** Default 200 for one server, 500 for a cluster. The shortest ttl that it grants is 1.5 of these, in whole seconds. */
  readonly electionMs?: number;
  /** Bytes of its database beyond which it takes deletes only. */
  readonly quotaBytes?: number;
  /** Seconds after its last use that a token of auth ends. Default: 300. */
  readonly tokenTtlSeconds?: number;
  /** It speaks TLS alone, with this certificate, which this authority has issued. */
  readonly tls?: Certificate & { readonly ca: string };
  /** Further arguments. */
  readonly args?: readonly string[];
  /** Another build of it. */
  readonly program?: string;
};

type EtcdCommandOptions = {
  /** "name:password" */
  readonly user?: string;
};

export type EtcdServer = {
  readonly address: EtcdAddress;
  /** http://127.0.0.1:2379, or https: */
  readonly url: string;
  readonly pid: number;
  /** One request to its JSON gateway: what it answers with, whatever its status is. */
  call(path: string, body?: object, token?: string): Promise<{ readonly status: number; readonly body: EtcdBody }>;
  /** What a command of etcdctl prints. @throws Error with what it prints if it fails */
  runCommand(args: readonly string[], options?: EtcdCommandOptions): Promise<string>;
  /** What it says of itself, also to those who are no users of it. Empty where it does not answer. */
  readMetrics(): Promise<string>;
  /** SIGSTOP and SIGCONT, for one. After SIGSTOP it does nothing more. */
  signal(name: NodeJS.Signals): void;
  /** Ends it with this signal and waits for its end. Its data stay. */
  stop(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again on the same port with the same data, and waits until it has a leader. */
  start(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** As the gateway writes it: 64-bit numbers are text, and what is zero, empty or false is left out. */
// biome-ignore lint/suspicious/noExplicitAny: each call has a shape of its own, which its test states
type EtcdBody = any;

/** One server of its own. */
export async function startEtcd(options: EtcdOptions = {}): Promise<EtcdServer> {
  installEtcd();
  const [port = 0, peerPort = 0] = await freePorts(2);
  const server = createServer({ ...ALONE, ...options }, port, [peerPort], 0);
  await server.start();
  return server;
}

/** Several servers that are one store; each is stopped and started by itself. */
export type EtcdCluster = {
  readonly servers: readonly EtcdServer[];
  readonly addresses: readonly EtcdAddress[];
  /** Waits until one of the servers that answer leads, and gives it. */
  leader(): Promise<EtcdServer>;
  /** Waits for a leader other than this one, which may be stopped. */
  leaderOtherThan(server: EtcdServer): Promise<EtcdServer>;
  /** Makes this server the leader, in an orderly way. */
  moveLeader(to: EtcdServer): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Three servers; any two of them go on. */
export async function startEtcdCluster(options: EtcdOptions = {}): Promise<EtcdCluster> {
  installEtcd();
  const ports = await freePorts(6);
  const [clientPorts, peerPorts] = [ports.slice(0, 3), ports.slice(3)];
  const servers = clientPorts.map((port, index) => createServer({ ...TOGETHER, ...options }, port, peerPorts, index));
  // one that listens for its peers and does not answer them yet costs each of the others a second
  for (const server of servers) await server.spawn();
  await Promise.all(servers.map((server) => server.waitForLeader()));
  const leadsAmong = async (candidates: readonly InternalServer[]): Promise<InternalServer | undefined> => {
    const metrics = await Promise.all(candidates.map((server) => server.readMetrics()));
    return candidates.find((_, index) => metrics[index]?.includes("\netcd_server_is_leader 1\n"));
  };
  const findLeader = (candidates: readonly InternalServer[]): Promise<InternalServer> =>
    until(() => leadsAmong(candidates), { within: START_MS, what: "a leader" });
  return {
    servers,
    addresses: servers.map(({ address }) => address),
    leader: () => findLeader(servers),
    leaderOtherThan: (oldLeader) => findLeader(servers.filter((server) => server !== oldLeader)),
    async moveLeader(to) {
      const leader = await findLeader(servers);
      if (leader === to) return;
      const id = /etcd_server_id\{server_id="([0-9a-f]+)"\}/.exec(await to.readMetrics())?.[1];
      await leader.runCommand(["move-leader", id ?? ""]);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    },
  };
}

type InternalServer = EtcdServer & {
  /** Starts the process and waits until its peers can talk to it. */
  spawn(): Promise<void>;
  waitForLeader(): Promise<void>;
};

function createServer(
  options: EtcdOptions & EtcdPace,
  port: number,
  peerPorts: readonly number[],
  index: number,
): InternalServer {
  const { heartbeatMs, electionMs, quotaBytes, tokenTtlSeconds, tls, args = [], program = PROGRAM } = options;
  const folder = mkdtempSync(join(tmpdir(), "holdfast-etcd-"));
  const url = `${tls === undefined ? "http" : "https"}://127.0.0.1:${port}`;
  const peerUrls = peerPorts.map((peerPort) => `http://127.0.0.1:${peerPort}`);
  const peerUrl = peerUrls[index] as string;
  const files = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem"), ca: join(folder, "ca.pem") };
  if (tls !== undefined) {
    writeFileSync(files.cert, tls.cert);
    writeFileSync(files.key, tls.key, { mode: 0o600 });
    writeFileSync(files.ca, tls.ca);
  }
  const command = [
    program,
    ...etcdArguments({ index, url, peerUrls, dataDirectory: join(folder, "data"), heartbeatMs, electionMs }),
    ...(quotaBytes === undefined ? [] : ["--quota-backend-bytes", String(quotaBytes)]),
    ...(tokenTtlSeconds === undefined ? [] : ["--auth-token-ttl", String(tokenTtlSeconds)]),
    ...(tls === undefined ? [] : ["--cert-file", files.cert, "--key-file", files.key]),
    ...args,
  ];
  let child: ChildProcess | null = null;

  const call: EtcdServer["call"] = (path, body = {}, token) => postJson(`${url}${path}`, body, token, tls?.ca);

  const readMetrics = (): Promise<string> => getText(`${url}/metrics`, tls?.ca).catch(() => "");

  async function spawnServer(): Promise<void> {
    const [first = "", ...rest] = endWithParent(command);
    const started = spawn(first, rest, { stdio: "ignore" });
    child = started;
    await until(
      () => {
        if (started.exitCode !== null) throw new Error(`etcd on port ${port} ended: ${started.exitCode}`);
        return getText(`${peerUrl}/version`).then(
          () => true,
          () => false,
        );
      },
      { within: START_MS, what: "etcd to answer its peers" },
    );
  }

  async function waitForLeader(): Promise<void> {
    const hasLeader = async (): Promise<boolean> => (await readMetrics()).includes("\netcd_server_has_leader 1\n");
    await until(hasLeader, { within: START_MS, what: `etcd on port ${port} to have a leader` });
  }

  async function stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const ending = child;
    if (ending === null || ending.exitCode !== null || ending.signalCode !== null) return;
    const exit = new Promise((resolve) => ending.once("exit", resolve));
    // a call with another signal may still wait: a process that is stopped ends by SIGKILL alone
    ending.kill(signal);
    await exit;
  }

  return {
    address: { host: "127.0.0.1", port },
    url,
    get pid() {
      return child?.pid ?? 0;
    },
    call,
    readMetrics,
    runCommand: (commandArgs, { user } = {}) =>
      runEtcdctl(commandArgs, [
        `--endpoints=${url}`,
        ...(tls === undefined ? [] : [`--cacert=${files.ca}`]),
        ...(user === undefined ? [] : [`--user=${user}`]),
      ]),
    signal: (name) => {
      if (child !== null) signalChild(child, name);
    },
    stop,
    spawn: spawnServer,
    waitForLeader,
    async start() {
      await spawnServer();
      await waitForLeader();
    },
    async [Symbol.asyncDispose]() {
      await stop("SIGKILL");
      rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

async function runEtcdctl(args: readonly string[], options: readonly string[]): Promise<string> {
  const { stdout } = await runFile("etcdctl", [...options, ...args], {
    env: etcdctlEnvironment(),
    timeout: COMMAND_TIMEOUT_MS,
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}

/** Of a process that runs etcdctl: 3.4 may take its old API by a variable of the machine's. */
export function etcdctlEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, ETCDCTL_API: "3" };
}

/**
 * Users, and that every request needs one: root, and "app", which may read and write the keys that begin with the prefix and
 * no other. Both have the password.
 */
export async function enableEtcdAuth(server: EtcdServer, password: string, prefix: string): Promise<void> {
  const rights = prefix === "" ? ["", "--from-key=true"] : [prefix, "--prefix=true"];
  for (const args of [
    ["user", "add", `root:${password}`],
    ["user", "grant-role", "root", "root"],
    ["role", "add", "locks"],
    ["role", "grant-permission", "locks", "readwrite", ...rights],
    ["user", "add", `app:${password}`],
    ["user", "grant-role", "app", "locks"],
    ["auth", "enable"],
  ])
    await server.runCommand(args);
}

/** Fills a store that has a quota until it refuses what it would have to keep, or does not answer. */
export async function fillEtcd(server: EtcdServer): Promise<void> {
  const value = Buffer.alloc(FILLER_BYTES, "x").toString("base64");
  const key = Buffer.from(FILLER_KEY).toString("base64");
  const put = async (): Promise<number> => (await server.call("/v3/kv/put", { key, value })).status;
  while ((await put().catch(() => 0)) === 200);
}

/** Undoes fillEtcd(), for all members of the store. */
export async function emptyEtcd(server: EtcdServer, ...others: readonly EtcdServer[]): Promise<void> {
  await server.runCommand(["del", FILLER_KEY]);
  await compactEtcd(server);
  // each has a file of its own
  for (const member of [server, ...others]) await member.runCommand(["defrag"]);
  await server.runCommand(["alarm", "disarm"]);
}

const FILLER_KEY = "filler-of-a-test";

/** Forgets all but the present state. Gives the revision up to which nothing is known any more. */
export async function compactEtcd(server: EtcdServer): Promise<string> {
  const { revision } = (await server.call("/v3/kv/range", { key: "AA==" })).body.header;
  await server.runCommand(["compact", revision, "--physical=true"]);
  return revision;
}

/** Why there is no etcd here and none can be had; null if there is. */
export function etcdUnavailableReason(): string | null {
  if (isInstalled() || canInstall()) return null;
  return "etcd and etcdctl are not installed, and only root on Debian or Ubuntu could install them";
}

export function installEtcd(): void {
  if (isInstalled()) return;
  const reason = etcdUnavailableReason();
  if (reason !== null) throw new Error(reason);
  installPackages(["etcd-server", "etcd-client"], "the etcd tests");
}

function isInstalled(): boolean {
  return (
    spawnSync(PROGRAM, ["--version"], { stdio: "ignore" }).status === 0 &&
    spawnSync("etcdctl", ["version"], { stdio: "ignore", env: etcdctlEnvironment() }).status === 0
  );
}

async function postJson(
  url: string,
  body: object,
  token: string | undefined,
  ca: string | undefined,
): ReturnType<EtcdServer["call"]> {
  const headers = { "content-type": "application/json", ...(token !== undefined && { authorization: token }) };
  const options = { method: "POST", headers, timeout: CALL_TIMEOUT_MS, ...(ca !== undefined && { ca }) };
  const { status, text } = await send(url, options, JSON.stringify(body));
  return { status, body: parseBody(text) };
}

function parseBody(text: string): EtcdBody {
  try {
    return JSON.parse(text);
  } catch {
    return { text };
  }
}

function getText(url: string, ca?: string): Promise<string> {
  return send(url, { method: "GET", timeout: 1_000, ...(ca !== undefined && { ca }) }).then(({ text }) => text);
}

function send(
  url: string,
  options: RequestOptions & { readonly ca?: string },
  body?: string,
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const request = url.startsWith("https:") ? requestSecurely : requestPlainly;
    const outgoing = request(url, { agent: false, ...options }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
    });
    outgoing.on("timeout", () => outgoing.destroy(new Error(`no answer to ${options.method} ${url}`)));
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}
