/** Runs the built command line as real processes, each test file with a directory, and so a lock server, of its own. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, vi } from "vitest";
import { connect } from "../../src/index.ts";
import { until } from "../../src/testing/until.ts";
import { builtFile } from "./built-file.ts";
import { expectNoSecret } from "./secret-scan.ts";

/** What `npm run build` made of src/cli/main.ts. */
export const PROGRAM: string = builtFile("dist/cli/main.js");

export type CommandResult = {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
};

export type RunningCommand = {
  readonly process: ChildProcess;
  readonly pid: number;
  /** What it has printed so far. */
  out(): string;
  err(): string;
  /** Settles when it has ended and its output was read. */
  readonly ended: Promise<CommandResult>;
};

type CommandOptions = {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly input?: string;
  readonly cwd?: string;
};

export type CliSandbox = {
  /** The HOLDFAST_DIR of everything started here, below a folder of this file's own. */
  readonly directory: string;
  readonly folder: string;
  /** Starts `holdfast` with these arguments. */
  start(args: readonly string[], options?: CommandOptions): RunningCommand;
  /** Runs it to its end. */
  run(args: readonly string[], options?: CommandOptions): Promise<CommandResult>;
  /** Starts any program in the same environment. */
  startProgram(command: readonly [string, ...string[]], options?: CommandOptions): RunningCommand;
  /** Settles when so many wait for the key at the server on demand. */
  waitForQueue(key: string, count?: number): Promise<unknown>;
  /** The process ids of the servers that were started on demand here, also of those that have ended. */
  autostartedServerPids(): number[];
};

/** Called once at the head of a file: a folder for all of its tests; servers that were started in it end with it. */
export function cliSandbox(): CliSandbox {
  // dozens of processes on a busy machine: a test that fails shall do so for another reason
  vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });
  let folder = "";
  const children = new Set<ChildProcess>();
  beforeAll(() => {
    folder = mkdtempSync("/tmp/hf-cli-");
  });
  afterAll(async () => {
    for (const child of children) child.kill("SIGKILL");
    const logs = readdirSync(folder).map((name) => join(folder, name, "server.log"));
    const pids = logs.flatMap(readServerPids).filter(isProcessAlive);
    for (const pid of pids) process.kill(pid, "SIGTERM");
    for (const pid of pids)
      await until(() => !isProcessAlive(pid), { within: 20_000, what: `the end of server ${pid}` });
    rmSync(folder, { recursive: true, maxRetries: 10 });
  });

  function startProgram(
    command: readonly [string, ...string[]],
    { env = {}, input, cwd }: CommandOptions = {},
  ): RunningCommand {
    const [name, ...args] = command;
    const child = spawn(name, args, {
      env: sandboxEnvironment(sandbox.directory, env),
      stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
      ...(cwd !== undefined && { cwd }),
    });
    children.add(child);
    child.stdin?.end(input);
    let [out, err] = ["", ""];
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      out += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      err += text;
    });
    const ended = new Promise<CommandResult>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, signal) => {
        children.delete(child);
        try {
          expectNoSecret(err, `what ${command.slice(0, 4).join(" ")} said on stderr`);
          // the one command that is asked for a secret as it is
          if (!args.includes("credential")) expectNoSecret(out, `what ${command.slice(0, 4).join(" ")} printed`);
        } catch (error) {
          return reject(error as Error);
        }
        resolve({ code, signal, out, err });
      });
    });
    return { process: child, pid: child.pid ?? -1, out: () => out, err: () => err, ended };
  }

  const start = (args: readonly string[], options?: CommandOptions): RunningCommand =>
    startProgram([process.execPath, PROGRAM, ...args], options);

  const sandbox: CliSandbox = {
    get directory() {
      return join(folder, "d");
    },
    get folder() {
      return folder;
    },
    start,
    run: (args, options) => start(args, options).ended,
    startProgram,
    async waitForQueue(key, count = 1) {
      const locks = await connect(`holdfast+unix:${join(sandbox.directory, "socket")}`);
      const hasExpectedWaiters = async (): Promise<boolean> =>
        (await locks.list(key)).filter(({ state }) => state === "waiting").length === count;
      try {
        await until(hasExpectedWaiters, { within: 20_000, what: `${count} to wait for ${key}` });
      } finally {
        await locks.close();
      }
    },
    autostartedServerPids: () => readServerPids(join(sandbox.directory, "server.log")),
  };
  return sandbox;
}

/** The test runner's environment with a HOLDFAST_DIR of the test's own, and without the variables that name a store. */
export function sandboxEnvironment(
  directory: string,
  env: Readonly<Record<string, string | undefined>> = {},
): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("HOLDFAST_"));
  return { ...Object.fromEntries(inherited), HOLDFAST_DIR: directory, ...env };
}

/** The process ids of the servers that wrote "listening" to the log of servers on demand. */
export function readServerPids(log: string): number[] {
  if (!existsSync(log)) return [];
  return [...readFileSync(log, "utf8").matchAll(/^\S+ (\d+) listening/gm)].map((match) => Number(match[1]));
}

/** Does this process live? One that has ended and that nobody has reaped does not. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
  const stat = existsSync(`/proc/${pid}/stat`) ? readFileSync(`/proc/${pid}/stat`, "latin1") : "";
  return !/\) [ZX] /.test(stat);
}

/** The watchdog of a run, by its wrapper: the shell below it that is not the command. */
export function findWatchdog(wrapper: number): number {
  const children = readFileSync(`/proc/${wrapper}/task/${wrapper}/children`, "latin1").trim().split(" ").map(Number);
  const watchdog = children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("holdfast-watchdog"));
  if (watchdog === undefined) throw new Error("the wrapper has no watchdog");
  return watchdog;
}
