/** A real Redis for tests: the installed program on a free port, its data in a temporary folder, ended by its pid. */

import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as dial } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../src/testing/until.ts";
import { endWithParent } from "../../../src/torture/processes/end-with-parent.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { signalChild } from "../../../src/torture/processes/process-tree.ts";
import { IMMEDIATE_REPLICATION, REDIS_PROGRAM } from "../../../src/torture/stores/redis-process.ts";
import type { CertificateFiles } from "../certificates.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { inspectRedisServer } from "./redis-inspector.ts";

/** What a server writes to its log where it, or a script, has failed. */
const LOGGED_FAULT = /^.* # .*(?:script|lua|critical|assert|bug report).*$/gim;
const logFiles = new WeakMap<ChildProcess, string>();

export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** Ends it as `kill -9` does and starts it again on the same port, empty. */
  restart(): Promise<void>;
  /** SIGSTOP, SIGCONT. */
  signal(name: NodeJS.Signals): void;
  stop(): Promise<void>;
}

/**
 * Starts a server of our own on a free port of the loopback. `settings`: further arguments of redis-server; `environment`:
 * further variables.
 */
export async function startRedis(
  settings: readonly string[] = [],
  environment: Readonly<Record<string, string>> = {},
): Promise<RedisServer> {
  installRedis();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-redis-"));
  const started = await startOnFreePort((port) => startRedisProcess(folder, port, settings, environment));
  const { port } = started;
  let child = started.resource;
  const stop = async (): Promise<void> => {
    const violations = await inspectRedisServer(port, child);
    await killAndCheckLog(child);
    // the child that saves for it may outlive it by a moment
    rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
    throwOnViolations(violations);
  };
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    async restart() {
      await killAndCheckLog(child);
      child = await startRedisProcess(folder, port, settings, environment);
    },
    signal: (name) => signalChild(child, name),
    stop,
  };
}

/** Another test may take a port before a server of ours does: then it ends at once, and has another. */
async function startOnFreePort<T>(
  create: (port: number) => Promise<T>,
): Promise<{ readonly port: number; readonly resource: T }> {
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    try {
      return { port, resource: await create(port) };
    } catch (error) {
      if (attempt === 3) throw error;
    }
  }
}

/** Why there is no Redis here and none can be had; null if there is. */
export function redisUnavailableReason(): string | null {
  if (isInstalled()) return null;
  return canInstall() ? null : `${REDIS_PROGRAM} is not installed, and only root on Debian or Ubuntu could install it`;
}

export function installRedis(): void {
  if (isInstalled()) return;
  const reason = redisUnavailableReason();
  if (reason !== null) throw new Error(reason);
  installPackages([REDIS_PROGRAM], "the Redis tests");
}

function isInstalled(): boolean {
  return spawnSync(REDIS_PROGRAM, ["--version"], { stdio: "ignore" }).status === 0;
}

interface RunOptions {
  /** Put before the command. */
  readonly commandPrefix?: readonly string[];
  /** Its file of settings, which it may write anew. */
  readonly configFile?: string;
}

/** @throws Error if anything was wrong in the state of a server that has ended */
export function throwOnViolations(violations: readonly string[]): void {
  if (violations.length > 0) throw new Error(`the state of Redis is wrong:\n  ${violations.join("\n  ")}`);
}

/** A server on this port, ready; ended by `killAndCheckLog`. */
export async function startRedisProcess(
  folder: string,
  port: number,
  settings: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  { commandPrefix = [], configFile }: RunOptions = {},
): Promise<ChildProcess> {
  const fixed = ["--port", String(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"];
  const log = join(folder, `log-${port}`);
  const named = [REDIS_PROGRAM, ...(configFile === undefined ? [] : [configFile])];
  const command = [...named, ...fixed, "--logfile", log, ...IMMEDIATE_REPLICATION, ...settings];
  const [program = "", ...args] = endWithParent([...commandPrefix, ...command]);
  const child = spawn(program, args, {
    stdio: "ignore",
    env: { ...process.env, ...environment },
  });
  logFiles.set(child, log);
  const failed = new Promise<never>((_, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => reject(new Error(`redis-server on port ${port} ended: ${signal ?? code}`)));
  });
  failed.catch(() => undefined); // it also ends when it is meant to
  const answers = until(() => isUp(port), { within: 30_000, what: `redis-server on port ${port}` });
  try {
    await Promise.race([answers, failed]);
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
  return child;
}

/** What makes it speak TLS, too, on this port. */
export function tlsArguments(port: number, { cert, key, ca }: CertificateFiles): readonly string[] {
  const files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca];
  return ["--tls-port", String(port), ...files, "--tls-auth-clients", "no"];
}

/** A user of the name app, with the password pw, and no more rights than these. */
export function userArguments(rules: readonly string[]): readonly string[] {
  return ["--user", "app", "on", ">pw", ...rules];
}

/** Ends it as `kill -9` does. @throws Error if its log tells of a fault */
export async function killAndCheckLog(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exit = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await exit;
  const log = logFiles.get(child);
  const faults = (log !== undefined && existsSync(log) && readFileSync(log, "utf8").match(LOGGED_FAULT)) || [];
  if (faults.length > 0) throw new Error(`the log of redis-server:\n  ${faults.join("\n  ")}`);
}

export function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

export function isUp(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = dial(port, "127.0.0.1", () => socket.write("PING\r\n"));
    const settle = (shouldBeUp: boolean) => (): void => {
      socket.destroy();
      resolve(shouldBeUp);
    };
    socket.once("data", settle(true));
    socket.once("error", settle(false));
    socket.once("close", settle(false));
  });
}
