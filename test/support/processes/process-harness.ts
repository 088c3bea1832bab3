/**
 * Where a crash test plays: a folder of its own, real processes in it, and the check that nothing of them is left. Each
 * process is started in a session of its own, without a terminal, so that a signal reaches whom it is meant for.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test as plain, vi } from "vitest";
import { until } from "../../../src/testing/until.ts";
import type { ProcessId } from "../../../src/torture/processes/process-tree.ts";
import {
  commandLine,
  descendants,
  identifyProcess,
  isAlive,
  processesWithEnvironment,
  sendSignal,
} from "../../../src/torture/processes/process-tree.ts";
import { PROGRAM, readServerPids, sandboxEnvironment } from "../cli-sandbox.ts";
import { expectNoSecret } from "../secret-scan.ts";
import { waitForOutput } from "./process-output.ts";

/** The long suite: more, longer, other seeds. */
export const IS_LONG_RUN: boolean = process.env.HOLDFAST_LONG === "1";

type ExitStatus = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type RunningProcess = {
  readonly process: ChildProcess;
  readonly pid: number;
  /** What it, and whoever it left behind, has printed so far. */
  out(): string;
  err(): string;
  /** Settles when it has ended, whatever it left behind. */
  readonly ended: Promise<ExitStatus>;
  hasEnded(): boolean;
  /** kill -9, of this process alone. What it leaves behind must end by itself: the end of the test looks. */
  kill(): void;
};

type ProcessOptions = {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  /** Give it an input that stays open until the test ends; else it has none. */
  readonly input?: true;
};

export type RunningServer = RunningProcess & { readonly url: string };

type ListedClaim = { readonly state: "held" | "waiting"; readonly token: string | null; readonly label: string };

export type ProcessHarness = {
  readonly folder: string;
  /** The HOLDFAST_DIR of everything started here. */
  readonly directory: string;
  path(name: string): string;
  startProgram(command: readonly [string, ...string[]], options?: ProcessOptions): RunningProcess;
  /** `holdfast` with these arguments. */
  start(args: readonly string[], options?: ProcessOptions): RunningProcess;
  /** `holdfast serve` on an address ("holdfast://127.0.0.1:0"; default a socket of its own), once it listens. */
  serve(args?: readonly string[], options?: ProcessOptions): Promise<RunningServer>;
  /** What `holdfast ls` says of the store of that url. */
  list(url?: string): Promise<readonly ListedClaim[]>;
  /** Settles when so many claims wait there. */
  waitForQueue(count: number, url?: string): Promise<void>;
  /** The living servers that were started on demand, the oldest first. */
  autostartedServers(): ProcessId[];
  /** All of them that ever listened. */
  autostartedServerPids(): number[];
  /** To be done when the test has ended and all of its processes have. */
  onTeardown(step: () => void): void;
};

/** How long the end of a process waits for the end of its output. */
const OUTPUT_DRAIN_MS = 200;

/** How long what a killed wrapper left behind may take to end: its guard's grace, and some more. */
const ORPHAN_EXIT_MS = 12_000;

// processes, not turns of a loop: a busy machine takes its time to start them
vi.setConfig({ testTimeout: 40_000 });

/** A test with a scene of its own; it fails, too, if a process of it is left that nobody asked to stay. */
export const test = plain.extend<{ readonly harness: ProcessHarness }>({
  // biome-ignore lint/correctness/noEmptyPattern: how Vitest asks which other fixtures this one needs
  harness: async ({}, use) => {
    const { harness, close } = openHarness();
    await use(harness);
    await close();
  },
});

function openHarness(): { readonly harness: ProcessHarness; close(): Promise<void> } {
  const folder = mkdtempSync("/tmp/hf-crash-");
  const processes: RunningProcess[] = [];
  /** What was below a process when it was killed. */
  const orphans: ProcessId[] = [];
  const teardownSteps: (() => void)[] = [];

  function killProcess(running: RunningProcess): void {
    if (running.hasEnded()) return;
    orphans.push(...descendants(running.pid));
    running.process.kill("SIGKILL");
  }

  function startProgram(command: readonly [string, ...string[]], options: ProcessOptions = {}): RunningProcess {
    const [name, ...args] = command;
    const child = spawn(name, args, {
      env: sandboxEnvironment(harness.directory, options.env),
      stdio: [options.input === true ? "pipe" : "ignore", "pipe", "pipe"],
      detached: true,
      cwd: options.cwd ?? folder,
    });
    const running = captureProcess(child, killProcess);
    processes.push(running);
    return running;
  }

  const harness: ProcessHarness = {
    folder,
    directory: join(folder, "d"),
    path: (name) => join(folder, name),
    startProgram,
    start: (args, options) => startProgram([process.execPath, PROGRAM, ...args], options),
    async serve(args = [], options = {}) {
      const listen = args.includes("--listen") ? [] : ["--listen", `holdfast+unix:${join(folder, "socket")}`];
      const state = args.includes("--state") ? [] : ["--state", join(folder, "state")];
      return waitUntilListening(harness.start(["serve", ...listen, ...state, ...args], options));
    },
    async list(url) {
      const ls = harness.start(["ls", "--json", ...(url === undefined ? [] : ["--url", url])]);
      const { code } = await ls.ended;
      if (code !== 0) throw new Error(`ls ended with ${code}: ${ls.err()}`);
      const lines = ls.out().split("\n");
      return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as ListedClaim);
    },
    async waitForQueue(count, url) {
      const condition = async (): Promise<boolean> => {
        const claims = await harness.list(url);
        return claims.filter(({ state }) => state === "waiting").length === count;
      };
      await until(condition, { within: 10_000, what: `${count} waiting` });
    },
    autostartedServers: () =>
      processesWithEnvironment(folder).filter(({ pid }) => commandLine(pid).endsWith(" serve --on-demand")),
    autostartedServerPids: () => readServerPids(join(harness.directory, "server.log")),
    onTeardown: (step) => void teardownSteps.push(step),
  };

  const close = async (): Promise<void> => {
    for (const running of processes) {
      killProcess(running);
      await running.ended;
    }
    const servers = harness.autostartedServers();
    const strayProcesses = [...orphans, ...processesWithEnvironment(folder)].filter(
      ({ pid }) => !servers.some((processId) => processId.pid === pid),
    );
    const survivors = await waitForOrphans(strayProcesses);
    for (const processId of [...survivors, ...servers]) sendSignal(processId, "SIGKILL");
    await until(() => ![...survivors, ...servers].some(isAlive), { within: 5_000, what: "the end of what was killed" });
    for (const step of teardownSteps) step();
    rmSync(folder, { recursive: true });
    if (survivors.length > 0) throw new Error(`left behind: ${survivors.map(({ pid }) => pid).join(", ")}`);
  };
  return { harness, close };
}

/** Whoever of these does not end by itself. */
async function waitForOrphans(strayProcesses: readonly ProcessId[]): Promise<ProcessId[]> {
  try {
    await until(() => !strayProcesses.some(isAlive), {
      within: ORPHAN_EXIT_MS,
      what: "the end of all that was left behind",
    });
    return [];
  } catch {
    return strayProcesses.filter(isAlive);
  }
}

function captureProcess(child: ChildProcess, kill: (running: RunningProcess) => void): RunningProcess {
  let [out, err] = ["", ""];
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    out += text;
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    err += text;
  });
  let isOver = false;
  const ended = new Promise<ExitStatus>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, name) => {
      isOver = true;
      // what it said last is still on its way; but whoever it left behind may hold its output open
      const settle = (): void => {
        clearTimeout(drainTimer);
        try {
          expectNoSecret(err, `what ${child.spawnargs.slice(0, 4).join(" ")} said on stderr`);
        } catch (error) {
          return reject(error as Error);
        }
        resolve({ code, signal: name });
      };
      // where everything stood still a timer comes before what has been said meanwhile
      const drainTimer = setTimeout(() => setImmediate(settle), OUTPUT_DRAIN_MS);
      child.once("close", settle);
    });
  });
  const running: RunningProcess = {
    process: child,
    pid: child.pid ?? -1,
    out: () => out,
    err: () => err,
    ended,
    hasEnded: () => isOver,
    kill: () => kill(running),
  };
  return running;
}

/** A server that was started by hand, once it listens. */
export async function waitUntilListening(running: RunningProcess): Promise<RunningServer> {
  const listens = (): RegExpExecArray | null => /^listening on (.+)$/m.exec(running.out());
  const found = await waitForOutput(running, listens, { within: 10_000, what: "the server to listen" });
  return { ...running, url: found[1] as string };
}

/** A running process as one that can be looked for later. */
export function requireProcess(pid: number): ProcessId {
  const processId = identifyProcess(pid);
  if (processId === null) throw new Error(`process ${pid} has ended already`);
  return processId;
}
