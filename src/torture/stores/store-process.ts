/** The process of a store that torture starts, kills, stops and starts again. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { StoreFault } from "./started-store.ts";

const START_MS = 30_000;
const END_MS = 5_000;
const POLL_MS = 20;

export interface StoreProcessOptions {
  readonly command: readonly [string, ...string[]];
  readonly env?: NodeJS.ProcessEnv;
  /** Whether it can be used. */
  isReady(): Promise<boolean>;
}

export class StoreProcess {
  readonly #options: StoreProcessOptions;
  #child: ChildProcess | null = null;
  #errorText = "";
  #isStruck = false;

  constructor(options: StoreProcessOptions) {
    this.#options = options;
  }

  /** Settles when the store can be used. @throws Error with its output if it ends, or takes too long */
  async start(): Promise<void> {
    const [program, ...args] = this.#options.command;
    const child = spawn(program, args, {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, ...this.#options.env },
    });
    this.#child = child;
    this.#errorText = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errorText = (this.#errorText + text).slice(-2_000);
    });
    const failed = once(child, "error").then(([error]) => {
      throw error as Error;
    });
    failed.catch(() => undefined);
    const endsAt = performance.now() + START_MS;
    while (!(await Promise.race([this.#options.isReady(), failed]))) {
      if (child.exitCode !== null || performance.now() > endsAt)
        throw new Error(`${program} did not start: ${this.#errorText.trim() || "it does not answer"}`);
      await delay(POLL_MS);
    }
  }

  /** One fault at a time. */
  async inject(fault: StoreFault): Promise<(() => Promise<void>) | null> {
    const child = this.#child;
    if (child === null || this.#isStruck) return null;
    this.#isStruck = true;
    if (fault === "pause") child.kill("SIGSTOP");
    else await this.#end(fault === "kill" ? "SIGKILL" : "SIGTERM");
    return async () => {
      if (fault === "pause") child.kill("SIGCONT");
      else await this.start();
      this.#isStruck = false;
    };
  }

  async close(): Promise<void> {
    this.#child?.kill("SIGCONT");
    await this.#end("SIGTERM");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    const timer = setTimeout(() => child.kill("SIGKILL"), END_MS);
    await ended;
    clearTimeout(timer);
  }
}

/** A port of 127.0.0.1 on which nothing listens. */
export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen({ host: "127.0.0.1", port: 0 }, () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
