/** The process of a database server, with all that it forks: started, stopped, killed and paused by their ids. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { until } from "../../testing/until.ts";
import { endWithParent } from "./end-with-parent.ts";
import { freePort } from "./free-port.ts";
import type { ProcessId } from "./process-tree.ts";
import { descendants, identifyProcess, isAlive, sendSignal } from "./process-tree.ts";

const START_MS = 60_000;
const STOP_MS = 20_000;
/** A server on a busy machine takes seconds for its first answer. */
const DIAL_MS = 5_000;
const ATTEMPTS = 3;
const LOG_TAIL = 2_000;

export interface DatabaseCommand {
  /** "PostgreSQL": for messages. */
  readonly name: string;
  readonly command: readonly [program: string, ...args: string[]];
  /** What it prints is appended to this file. */
  readonly log: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Whom it runs as. Default: the user of the tests. */
  readonly user?: number | undefined;
  /** The signal at which it ends in order. */
  readonly stopSignal: NodeJS.Signals;
  /** Lines of its log that a test has to fail for. */
  readonly faults: RegExp;
  /** Asked again until it is true. */
  isReady(): Promise<boolean>;
}

export interface DatabaseProcess {
  /** 0 while it does not run. */
  readonly pid: number;
  /** Waits until it is ready. */
  start(): Promise<void>;
  /** Ends it in order and waits for its end; its data stay. Nothing happens if it does not run. */
  stop(): Promise<void>;
  /** Ends it, and everything that it has forked, as `kill -9` does. */
  crash(): Promise<void>;
  /** SIGSTOP and SIGCONT, to everything that it has forked as well. */
  signal(name: NodeJS.Signals): void;
  /** The faults in its log. */
  loggedFaults(): string[];
}

/** Starts one on a free port: another test may take a port first, and then the next one is tried. */
export async function startOnFreePort(
  make: (port: number) => DatabaseCommand,
): Promise<{ readonly port: number; readonly process: DatabaseProcess }> {
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    const made = createDatabaseProcess(make(port));
    try {
      await made.start();
      return { port, process: made };
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

export function createDatabaseProcess(database: DatabaseCommand): DatabaseProcess {
  let child: ChildProcess | null = null;

  async function start(): Promise<void> {
    child = spawnDatabase(database);
    const { pid } = child;
    try {
      await Promise.race([
        until(database.isReady, { within: START_MS, what: `${database.name} to answer` }),
        failWhenEnded(child, database),
      ]);
    } catch (error) {
      await crash();
      throw new Error(`${database.name} did not start (process ${pid}): ${readTail(database.log)}`, { cause: error });
    }
  }

  /** Every process that shares the memory of a database: the server does not start again before the last has ended. */
  async function end(send: (all: readonly ProcessId[]) => void): Promise<void> {
    const all = listTree(child);
    child = null;
    send(all);
    const within = { within: STOP_MS, what: `the end of ${database.name}` };
    await until(() => !all.some(isAlive), within).catch((error: unknown) => {
      for (const one of all) sendSignal(one, "SIGKILL");
      throw error;
    });
  }

  async function crash(): Promise<void> {
    // the first is the parent of the others: it must not see them end, for it would start them again
    await end((all) => {
      for (const one of all) sendSignal(one, "SIGKILL");
    });
  }

  return {
    get pid() {
      return child?.pid ?? 0;
    },
    start,
    stop: () =>
      end((all) => {
        // a test may have paused it
        for (const one of all) sendSignal(one, "SIGCONT");
        if (all[0] !== undefined) sendSignal(all[0], database.stopSignal);
      }),
    crash,
    signal(name) {
      for (const one of listTree(child)) sendSignal(one, name);
    },
    loggedFaults: () =>
      existsSync(database.log) ? (readFileSync(database.log, "utf8").match(database.faults) ?? []) : [],
  };
}

function spawnDatabase({ command, log, environment, user }: DatabaseCommand): ChildProcess {
  const [program = "", ...args] = endWithParent(command);
  const output = openSync(log, "a");
  const identity = user === undefined ? {} : { uid: user, gid: user };
  const env = { ...process.env, ...environment };
  const child = spawn(program, args, { stdio: ["ignore", output, output], env, cwd: "/", detached: true, ...identity });
  closeSync(output);
  return child;
}

async function failWhenEnded(child: ChildProcess, { name }: DatabaseCommand): Promise<never> {
  return new Promise((_, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => reject(new Error(`${name} ended: ${signal ?? code}`)));
  });
}

/** The process itself first. */
function listTree(child: ChildProcess | null): readonly ProcessId[] {
  const first = child?.pid === undefined ? null : identifyProcess(child.pid);
  return first === null ? [] : [first, ...descendants(first.pid)];
}

function readTail(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8").slice(-LOG_TAIL) : "no log";
}

/** What a server answers first to these bytes; empty if nobody listens, or it closes the connection. */
export function firstAnswer(port: number, bytes: Uint8Array): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => bytes.length > 0 && socket.write(bytes));
    const settle = (answer: Buffer): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(DIAL_MS, () => settle(Buffer.alloc(0)));
    socket.once("data", settle);
    socket.once("error", () => settle(Buffer.alloc(0)));
    socket.once("close", () => settle(Buffer.alloc(0)));
  });
}
