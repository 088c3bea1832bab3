/** `etcdctl lock` and `etcdctl elect` as processes that hold or wait. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { until } from "../../../src/testing/until.ts";
import { endWithParent } from "../../../src/torture/processes/end-with-parent.ts";
import type { EtcdServer } from "../stores/etcd.ts";
import { etcdctlEnvironment } from "../stores/etcd.ts";

const TIMEOUT_MS = 20_000;

export type EtcdctlOptions = {
  readonly server: EtcdServer;
  /** Of the lock, or of the election. */
  readonly name: string;
  /** Of its lease. Default: 10, as etcdctl has it. */
  readonly ttlSeconds?: number;
  /** "name:password" */
  readonly user?: string;
};

export type EtcdctlHolder = AsyncDisposable & {
  /** When it holds: the key that it has created. @throws Error with what it printed if it ends before */
  waitUntilHeld(within?: number): Promise<string>;
  isHeld(): boolean;
  /** Ends it in an orderly way: it deletes its key. Its lease is left to its ttl. */
  release(): Promise<void>;
  /** kill -9: key and lease stay until the ttl is over. */
  kill(): Promise<void>;
  /** SIGSTOP and SIGCONT. */
  signal(name: NodeJS.Signals): void;
};

/** Holds as soon as it can, until it is ended. */
export function startEtcdctlLock(options: EtcdctlOptions): EtcdctlHolder {
  const ttl = options.ttlSeconds === undefined ? [] : [`--ttl=${options.ttlSeconds}`];
  return startHolder(options, ["lock", ...ttl, options.name]);
}

/** A candidate with this proposal, which is the value of its key. Its ttl is a minute: `etcdctl elect` takes none. */
export function startEtcdctlElect(options: Omit<EtcdctlOptions, "ttlSeconds">, proposal: string): EtcdctlHolder {
  return startHolder(options, ["elect", options.name, proposal]);
}

/** Runs a command under a lock: what it prints, once it has ended and the lock is released. */
export function runUnderEtcdctlLock(options: EtcdctlOptions, command: readonly string[]): Promise<string> {
  const { server, name, ttlSeconds = 10, user } = options;
  return server.runCommand(["lock", `--ttl=${ttlSeconds}`, name, "--", ...command], user === undefined ? {} : { user });
}

function startHolder({ server, name, user }: EtcdctlOptions, command: readonly string[]): EtcdctlHolder {
  const login = user === undefined ? [] : [`--user=${user}`];
  const [program = "", ...args] = endWithParent(["etcdctl", `--endpoints=${server.url}`, ...login, ...command]);
  const child = spawn(program, args, { env: etcdctlEnvironment(), stdio: ["ignore", "pipe", "pipe"] });
  let key: string | null = null;
  let errors = "";
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (key === null && line.startsWith(`${name}/`)) key = line;
  });
  child.stderr.on("data", (text: Buffer) => {
    errors += text;
  });
  return {
    waitUntilHeld: (within = TIMEOUT_MS) =>
      until(
        () => {
          if (key === null && hasEnded(child)) throw new Error(`etcdctl ended: ${errors}`);
          return key;
        },
        { within, what: `etcdctl to hold ${name}` },
      ),
    isHeld: () => key !== null && !hasEnded(child),
    release: () => end(child, "SIGTERM"),
    kill: () => end(child, "SIGKILL"),
    signal: (signal) => void child.kill(signal),
    [Symbol.asyncDispose]: () => end(child, "SIGKILL"),
  };
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (hasEnded(child)) return;
  const exit = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  await exit;
}
