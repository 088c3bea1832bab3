/** Processes of Redis, each with its data on its disk before it answers. */

import { mkdirSync, rmSync } from "node:fs";
import type { DatabaseProcess } from "../processes/database-process.ts";
import { createDatabaseProcess, firstAnswer } from "../processes/database-process.ts";
import { freePort } from "../processes/free-port.ts";
import { versionOf } from "./programs.ts";

export const REDIS_PROGRAM = "redis-server";
/** Every change that was acknowledged survives the end of the process. The append-only file is never rewritten, which would only take time. */
const DURABLE = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0"];
/** Otherwise a replica waits five seconds for further ones. */
export const IMMEDIATE_REPLICATION: readonly string[] = ["--repl-diskless-sync-delay", "0"];

export interface RedisProcess {
  readonly port: number;
  readonly process: DatabaseProcess;
  /** Once it has ended. */
  wipe(): void;
}

export function redisVersion(): string {
  return versionOf(REDIS_PROGRAM, ["--version"]);
}

/** @param settings further arguments @param configFile a file to which the server writes changes of its configuration */
export async function createRedisProcess(
  directory: string,
  settings: readonly string[] = [],
  configFile?: string,
): Promise<RedisProcess> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const port = await freePort();
  const process = createDatabaseProcess({
    name: "Redis",
    command: [
      ...([REDIS_PROGRAM, ...(configFile === undefined ? [] : [configFile]), "--port", String(port)] as const),
      ...[
        "--bind",
        "127.0.0.1",
        "--dir",
        directory,
        "--logfile",
        "",
        ...DURABLE,
        ...IMMEDIATE_REPLICATION,
        ...settings,
      ],
    ] as [string, ...string[]],
    log: `${directory}.log`,
    environment: {},
    stopSignal: "SIGTERM",
    faults: /REDIS BUG REPORT/g,
    // not while it loads its data
    isReady: () => isAnswering(port),
  });
  return {
    port,
    process,
    wipe() {
      rmSync(directory, { recursive: true });
      mkdirSync(directory, { mode: 0o700 });
    },
  };
}

export async function isAnswering(port: number): Promise<boolean> {
  return (await askRedis(port, "PING")).startsWith("+PONG");
}

/** The first part of the answer to a command; empty: there was none. */
export async function askRedis(port: number, ...words: readonly string[]): Promise<string> {
  return (await firstAnswer(port, Buffer.from(`${words.join(" ")}\r\n`))).toString();
}

/** A server's report of its replication. */
export function askReplication(port: number): Promise<string> {
  return askRedis(port, "INFO", "replication");
}

/** @throws Error if the server refuses it */
export async function tellRedis(port: number, ...words: readonly string[]): Promise<void> {
  const answer = await askRedis(port, ...words);
  if (!answer.startsWith("+OK")) throw new Error(`Redis answers ${JSON.stringify(answer.trim())} to ${words[0]}`);
}
