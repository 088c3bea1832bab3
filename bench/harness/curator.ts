/** Curator in a JVM of its own (bench/curator): compiled where a JDK and Debian's libcurator-recipes-java are. */

import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { CURATOR_JAR, installCurator } from "../../test/support/curator/contender-process.ts";
import { processCpuMicros } from "./process-cpu.ts";
import type { WindowLoad, WindowSample } from "./sampling-window.ts";

const SOURCE = resolve("bench/curator/CuratorBench.java");

/** Installs it if need be, and compiles the program into this folder. @throws what apt or the compiler said */
export function compileCurator(folder: string): void {
  installCurator();
  const { status, stderr } = spawnSync("javac", ["-cp", CURATOR_JAR, "-d", folder, SOURCE], { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
}

/** A Curator client and its callers. */
export class CuratorClient {
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;
  #cpuBefore = 0;

  private constructor(child: ChildProcessWithoutNullStreams) {
    this.#process = child;
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    // without a logger of its own it says so
    child.stderr.resume();
  }

  /** @param classes the folder of compileCurator(), @param server host:port */
  static async start(classes: string, server: string): Promise<CuratorClient> {
    const args = ["-Xmx256m", "-cp", `${classes}:${CURATOR_JAR}`, "CuratorBench", server];
    const started = new CuratorClient(spawn("java", args));
    await started.#readReply("ready");
    return started;
  }

  begin({ callers, keys, prefix = "" }: WindowLoad): Promise<string> {
    return this.#send(`${callers} ${keys} ${prefix}`);
  }

  async mark(): Promise<void> {
    await this.#send("mark");
    this.#cpuBefore = processCpuMicros(this.#process.pid as number);
  }

  async look(): Promise<WindowSample> {
    const [ms, p50, p99, most, grants = ""] = (await this.#send("look")).split(" ");
    return {
      ms: Number(ms),
      cpu: processCpuMicros(this.#process.pid as number) - this.#cpuBefore,
      grantsPerCaller: grants.split(",").map(Number),
      p50: Number(p50),
      p99: Number(p99),
      most: Number(most),
    };
  }

  finish(): Promise<string> {
    return this.#send("finish");
  }

  async end(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exit;
  }

  #send(order: string): Promise<string> {
    this.#process.stdin.write(`${order}\n`);
    return this.#readReply();
  }

  async #readReply(expected?: string): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done === true || (expected !== undefined && value !== expected))
      throw new Error(`Curator ended or said ${value}`);
    return value;
  }
}
