/**
 * Curator itself, from Debian, as a process that contends for locks; and one of ours that takes the same orders (see
 * test/support/curator). Installed where it is missing; the Java program is compiled once, into a temporary folder.
 */

import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { until } from "../../../src/testing/until.ts";
import { builtFile } from "../built-file.ts";
import { installPackages } from "../debian-packages.ts";

/** Its class path names all else that it needs. */
export const CURATOR_JAR = "/usr/share/java/curator-recipes.jar";
const PACKAGES = ["libcurator-recipes-java", "default-jdk-headless"];
const SOURCE = resolve("test/support/curator/Contender.java");
const HOLDFAST_PROGRAM = "build/test/support/curator/contender.child.js";
const JAVA_OPTIONS = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
/** A machine that is busy with other tests starts a JVM slowly. */
const TIMEOUT_MS = 40_000;

/** A process of contenders, each with a name and a session of its own. */
export type ContenderProcess = AsyncDisposable & {
  /** An order of Contender.java. */
  send(order: string): void;
  /** When it has told this line so many times in all: "a held". @throws what failed for that name, if something has */
  waitForReport(line: string, times?: number, within?: number): Promise<void>;
  hasReported(line: string): boolean;
  /** kill -9. */
  kill(): Promise<void>;
};

export type ContenderOptions = {
  /** host:port */
  readonly server: string;
  readonly sessionMs: number;
  /** See test/support/curator/exclusion-register.ts; 0: none. */
  readonly registerPort?: number;
};

/** Contenders that use Curator. */
export async function startCuratorContender(options: ContenderOptions): Promise<ContenderProcess> {
  const classes = compileCurator();
  const command = ["java", ...JAVA_OPTIONS, "-cp", `${classes}:${CURATOR_JAR}`, "Contender"];
  return startContender([...command, ...toArguments(options)]);
}

/** Contenders that use Holdfast, in strict order of arrival. */
export async function startHoldfastContender(
  options: ContenderOptions,
  store: "zookeeper" | "etcd" = "zookeeper",
): Promise<ContenderProcess> {
  return startContender([process.execPath, builtFile(HOLDFAST_PROGRAM), ...toArguments(options), store]);
}

function toArguments({ server, sessionMs, registerPort = 0 }: ContenderOptions): string[] {
  return [server, String(sessionMs), String(registerPort)];
}

/** A process that obeys the orders of Contender.java on its input. */
export async function startContender([program = "", ...args]: readonly string[]): Promise<ContenderProcess> {
  const child = spawn(program, args);
  const lines: string[] = [];
  let errors = "";
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  child.stderr.on("data", (text: Buffer) => {
    errors += text;
  });
  // an order to one that was killed
  child.stdin.on("error", () => undefined);
  const waitForReport = async (line: string, times = 1, timeoutMs = TIMEOUT_MS): Promise<void> => {
    const condition = (): boolean => {
      const failed = lines.find((reportLine) => reportLine.startsWith(`${line.split(" ")[0]} failed `));
      if (failed !== undefined) throw new Error(failed);
      if (child.exitCode !== null) throw new Error(`the contenders ended: ${errors}`);
      return lines.filter((reportLine) => reportLine === line).length >= times;
    };
    await until(condition, { within: timeoutMs, what: `"${line}", times ${times}` });
  };
  const contenderProcess: ContenderProcess = {
    send: (order) => void child.stdin.write(`${order}\n`),
    waitForReport,
    hasReported: (line) => lines.includes(line),
    kill: () => waitForExit(child, "SIGKILL"),
    [Symbol.asyncDispose]: () => waitForExit(child, "SIGTERM"),
  };
  await waitForReport("ready");
  return contenderProcess;
}

async function waitForExit(child: ChildProcessWithoutNullStreams, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((onExit) => child.once("exit", onExit));
  child.kill(signal);
  await exit;
}

/** Compiles the Java program, unless it is there. Returns the folder of its classes. */
export function compileCurator(): string {
  installCurator();
  const version = createHash("sha256").update(readFileSync(SOURCE)).digest("hex").slice(0, 16);
  const classes = join(tmpdir(), `holdfast-curator-${process.getuid?.() ?? ""}-${version}`);
  if (existsSync(classes)) return classes;
  const temporaryFolder = mkdtempSync(join(tmpdir(), "holdfast-javac-"));
  const { status, stderr } = spawnSync("javac", ["-cp", CURATOR_JAR, "-d", temporaryFolder, SOURCE], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`javac: ${stderr}`);
  try {
    renameSync(temporaryFolder, classes);
  } catch (error) {
    // another test file was faster
    if (!existsSync(classes)) throw error;
    rmSync(temporaryFolder, { recursive: true });
  }
  return classes;
}

/** Installs Curator and a JDK from Debian, unless they are there. */
export function installCurator(): void {
  if (existsSync(CURATOR_JAR) && spawnSync("javac", ["-version"]).status === 0) return;
  installPackages(PACKAGES, "what is done with Curator");
}
