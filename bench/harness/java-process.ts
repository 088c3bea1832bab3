/** The polling lock over Java RMI (bench/rmi): compiled where a JDK is, with its server and clients as processes. */

import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const SOURCES = resolve("bench/rmi");

interface Jdk {
  readonly java: string;
  readonly javac: string;
  /** As it calls itself. */
  readonly version: string;
}

/** In JAVA_HOME, else on the PATH; null if there is none. */
export function findJdk(): Jdk | null {
  const home = process.env.JAVA_HOME;
  const command = (name: string): string => {
    const inHome = home === undefined ? "" : join(home, "bin", name);
    return existsSync(inHome) ? inHome : name;
  };
  const [java, javac] = [command("java"), command("javac")];
  if (spawnSync(javac, ["-version"]).status !== 0) return null;
  const { status, stderr } = spawnSync(java, ["-version"], { encoding: "utf8" });
  return status === 0 ? { java, javac, version: stderr.split("\n")[0] ?? "" } : null;
}

/** @throws Error with what the compiler said */
export function compileLock({ javac }: Jdk, folder: string): void {
  const files = ["TokenLock", "PollingLock", "Main"].map((name) => join(SOURCES, `${name}.java`));
  const { status, stderr } = spawnSync(javac, ["-d", folder, ...files], { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
}

/** A Java process, that answers each line of its input with one of its output. */
export class JavaProcess {
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;

  private constructor(child: ChildProcessWithoutNullStreams) {
    this.#process = child;
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.stderr.on("data", (text: Buffer) => process.stderr.write(text));
  }

  /** Once it is ready. @param classes the folder of compileLock() */
  static async start({ java }: Jdk, classes: string, args: readonly string[]): Promise<JavaProcess> {
    const started = new JavaProcess(
      spawn(java, ["-Djava.rmi.server.hostname=127.0.0.1", "-Xmx256m", "-cp", classes, "Main", ...args]),
    );
    const reply = await started.#readReply();
    if (reply !== "ready") throw new Error(`java said ${reply}`);
    return started;
  }

  /** Milliseconds that so many threads took to lock and unlock so many times each. */
  async run(threads: number, times: number): Promise<number> {
    this.#process.stdin.write(`${threads} ${times}\n`);
    return Number(await this.#readReply());
  }

  async end(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exit;
  }

  async #readReply(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error("java ended");
    return value;
  }
}
