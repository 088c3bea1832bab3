/** Calls between the bench and its child processes, over the channel that fork() makes. */

import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { countConnections } from "./process-connections.ts";

type Handlers = Readonly<Record<string, (argument: never) => unknown>>;

interface Call {
  readonly number: number;
  readonly name: string;
  readonly argument: unknown;
}

interface Reply {
  readonly number: number;
  readonly result?: unknown;
  readonly error?: string;
}

/** A program of the bench in a process of its own. */
export class ChildProcessRpc {
  readonly #process: ChildProcess;
  readonly #pendingCalls = new Map<number, { resolve(result: unknown): void; reject(error: Error): void }>();
  #calls = 0;

  /** @param program its compiled file */
  constructor(program: URL, args: readonly string[], nodeOptions: readonly string[] = []) {
    this.#process = fork(program, args, { execArgv: [...nodeOptions], stdio: ["ignore", "ignore", "inherit", "ipc"] });
    this.#process.on("message", ({ number, result, error }: Reply) => {
      const call = this.#pendingCalls.get(number);
      this.#pendingCalls.delete(number);
      if (error === undefined) call?.resolve(result);
      else call?.reject(new Error(error));
    });
    this.#process.on("exit", (code, signal) => {
      for (const call of this.#pendingCalls.values()) {
        call.reject(new Error(`${program.pathname} ${args.join(" ")} ended with ${code ?? signal}`));
      }
      this.#pendingCalls.clear();
    });
  }

  /** Its TCP connections now. */
  countConnections(): number {
    return countConnections(this.#process.pid as number);
  }

  call<T>(name: string, argument?: unknown): Promise<T> {
    const number = ++this.#calls;
    return new Promise<T>((resolve, reject) => {
      this.#pendingCalls.set(number, { resolve: resolve as (result: unknown) => void, reject });
      this.#process.send({ number, name, argument } satisfies Call, (error) => {
        if (error !== null) reject(error);
      });
    });
  }

  /** The microseconds of CPU it has used. */
  cpuMicros(): Promise<number> {
    return this.call<number>("cpu");
  }

  async end(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exit;
  }
}

/** In a child: answers calls until the bench goes away. */
export function serveCalls(handlers: Handlers): void {
  const all: Handlers = { cpu: cpuMicros, memory: memoryInUse, ...handlers };
  process.on("message", (call: Call) => void answerCall(all, call).then((reply) => process.send?.(reply)));
  process.on("disconnect", () => process.exit());
}

async function answerCall(handlers: Handlers, { number, name, argument }: Call): Promise<Reply> {
  try {
    const handler = handlers[name];
    if (handler === undefined) throw new Error(`no call ${name}`);
    return { number, result: await handler(argument as never) };
  } catch (error) {
    return { number, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}

/**
 * Bytes the process keeps, after a full collection: of JavaScript and its buffers, and of memory in all. Needs
 * --expose-gc.
 */
export interface MemoryInUse {
  readonly heap: number;
  readonly resident: number;
}

async function memoryInUse(): Promise<MemoryInUse> {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error("needs --expose-gc");
  for (let times = 0; times < 3; times++) {
    await delay(20);
    gc();
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heap: heapUsed + external, resident: rss };
}

function cpuMicros(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
