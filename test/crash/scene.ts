/**
 * Where a crash test plays: a folder of its own, real processes in it, and the check that nothing of them is left. Each
 * process is started in a session of its own, without a terminal, so that a signal reaches whom it is meant for.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { test as plain, vi } from "vitest";
import { checkNoSecret } from "../support/canary.ts";
import { until } from "../support/wait-for.ts";
import type { Seen } from "./processes.ts";
import { below, commandOf, isLiving, seen, signal, withInEnvironment } from "./processes.ts";

/** What `npm run build` made of src/cli/main.ts. */
export const PROGRAM: string = resolve("dist/cli/main.js");

/** The long suite: more, longer, other seeds. */
export const LONG: boolean = process.env.HOLDFAST_LONG === "1";

type Ended = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type Running = {
  readonly process: ChildProcess;
  readonly pid: number;
  /** What it, and whoever it left behind, has printed so far. */
  out(): string;
  err(): string;
  /** Settles when it has ended, whatever it left behind. */
  readonly ended: Promise<Ended>;
  hasEnded(): boolean;
  /** kill -9, of this process alone. What it leaves behind must end by itself: the end of the test looks. */
  kill(): void;
};

type Options = {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  /** Give it an input that stays open until the test ends; else it has none. */
  readonly input?: true;
};

export type Served = Running & { readonly url: string; readonly address: string };

type Listed = { readonly state: "held" | "waiting"; readonly token: string | null; readonly label: string };

export type Scene = {
  readonly folder: string;
  /** The HOLDFAST_DIR of everything started here. */
  readonly directory: string;
  path(name: string): string;
  program(command: readonly [string, ...string[]], options?: Options): Running;
  /** `holdfast` with these arguments. */
  start(args: readonly string[], options?: Options): Running;
  /** `holdfast serve` on an address ("tcp://127.0.0.1:0"; default a socket of its own), once it listens. */
  serve(args?: readonly string[], options?: Options): Promise<Served>;
  /** What `holdfast ls` says of the store of that url. */
  list(url?: string): Promise<readonly Listed[]>;
  /** Settles when so many claims wait there. */
  waiting(count: number, url?: string): Promise<void>;
  /** The living servers that were started on demand, the oldest first. */
  servers(): Seen[];
  /** All of them that ever listened. */
  everListened(): number[];
  /** To be done when the test has ended and all of its processes have. */
  later(step: () => void): void;
};

/** How long the end of a process waits for the end of its output. */
const OUTPUT_MS = 200;

/** How long what a killed wrapper left behind may take to end: its guard's grace, and some more. */
const STRAYS_MS = 12_000;

// processes, not turns of a loop: a busy machine takes its time to start them
vi.setConfig({ testTimeout: 40_000 });

/** A test with a scene of its own; it fails, too, if a process of it is left that nobody asked to stay. */
export const test = plain.extend<{ readonly here: Scene }>({
  // biome-ignore lint/correctness/noEmptyPattern: how Vitest asks which other fixtures this one needs
  here: async ({}, use) => {
    const { here, close } = openScene();
    await use(here);
    await close();
  },
});

function openScene(): { readonly here: Scene; close(): Promise<void> } {
  if (!existsSync(PROGRAM)) throw new Error("dist is missing: npm run build");
  const folder = mkdtempSync("/tmp/hf-crash-");
  const all: Running[] = [];
  /** What was below a process when it was killed. */
  const orphans: Seen[] = [];
  const steps: (() => void)[] = [];

  function kill(running: Running): void {
    if (running.hasEnded()) return;
    orphans.push(...below(running.pid));
    running.process.kill("SIGKILL");
  }

  function program(command: readonly [string, ...string[]], options: Options = {}): Running {
    const [name, ...args] = command;
    const child = spawn(name, args, {
      env: { ...bare(process.env), HOLDFAST_DIR: here.directory, ...options.env },
      stdio: [options.input === true ? "pipe" : "ignore", "pipe", "pipe"],
      detached: true,
      cwd: options.cwd ?? folder,
    });
    const running = watched(child, kill);
    all.push(running);
    return running;
  }

  const here: Scene = {
    folder,
    directory: join(folder, "d"),
    path: (name) => join(folder, name),
    program,
    start: (args, options) => program([process.execPath, PROGRAM, ...args], options),
    async serve(args = [], options = {}) {
      const listen = args.includes("--listen") ? [] : ["--listen", `unix:${join(folder, "socket")}`];
      const state = args.includes("--state") ? [] : ["--state", join(folder, "state")];
      return served(here.start(["serve", ...listen, ...state, ...args], options));
    },
    async list(url) {
      const ls = here.start(["ls", "--json", ...(url === undefined ? [] : ["--url", url])]);
      const { code } = await ls.ended;
      if (code !== 0) throw new Error(`ls ended with ${code}: ${ls.err()}`);
      const lines = ls.out().split("\n");
      return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Listed);
    },
    async waiting(count, url) {
      const isSo = async (): Promise<boolean> => {
        const all = await here.list(url);
        return all.filter(({ state }) => state === "waiting").length === count;
      };
      await until(isSo, { within: 10_000, what: `${count} waiting` });
    },
    servers: () => withInEnvironment(folder).filter(({ pid }) => commandOf(pid).endsWith(" serve --on-demand")),
    everListened: () => listenedIn(join(here.directory, "server.log")),
    later: (step) => void steps.push(step),
  };

  const close = async (): Promise<void> => {
    for (const running of all) {
      kill(running);
      await running.ended;
    }
    const servers = here.servers();
    const strays = [...orphans, ...withInEnvironment(folder)].filter(
      ({ pid }) => !servers.some((it) => it.pid === pid),
    );
    const left = await leftOf(strays);
    for (const one of [...left, ...servers]) signal(one, "SIGKILL");
    await until(() => ![...left, ...servers].some(isLiving), { within: 5_000, what: "the end of what was killed" });
    for (const step of steps) step();
    rmSync(folder, { recursive: true });
    if (left.length > 0) throw new Error(`left behind: ${left.map(({ pid }) => pid).join(", ")}`);
  };
  return { here, close };
}

/** Whoever of these does not end by itself. */
async function leftOf(strays: readonly Seen[]): Promise<Seen[]> {
  try {
    await until(() => !strays.some(isLiving), { within: STRAYS_MS, what: "the end of all that was left behind" });
    return [];
  } catch {
    return strays.filter(isLiving);
  }
}

function watched(child: ChildProcess, kill: (running: Running) => void): Running {
  let [out, err] = ["", ""];
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    out += text;
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    err += text;
  });
  let over = false;
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, name) => {
      over = true;
      // what it said last is still on its way; but whoever it left behind may hold its output open
      const settle = (): void => {
        clearTimeout(patience);
        try {
          checkNoSecret(err, `what ${child.spawnargs.slice(0, 4).join(" ")} said on stderr`);
        } catch (error) {
          return reject(error as Error);
        }
        resolve({ code, signal: name });
      };
      // where everything stood still a timer comes before what has been said meanwhile
      const patience = setTimeout(() => setImmediate(settle), OUTPUT_MS);
      child.once("close", settle);
    });
  });
  const running: Running = {
    process: child,
    pid: child.pid ?? -1,
    out: () => out,
    err: () => err,
    ended,
    hasEnded: () => over,
    kill: () => kill(running),
  };
  return running;
}

/** A server that was started by hand, once it listens. */
export async function served(running: Running): Promise<Served> {
  const said = await until(() => (running.hasEnded() ? running.err() : /^listening on (.+)$/m.exec(running.out())), {
    within: 10_000,
    what: "the server to listen",
  });
  if (typeof said === "string") throw new Error(`the server ended: ${said}`);
  const address = said[1] as string;
  const url = address.startsWith("unix:") ? `holdfast+${address}` : address.replace("tcp:", "holdfast:");
  return { ...running, url, address };
}

/** The test runner's own environment must not say which store to use. */
function bare(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith("HOLDFAST_")));
}

/** Who wrote "listening" to the log of servers on demand. */
function listenedIn(log: string): number[] {
  if (!existsSync(log)) return [];
  return [...readFileSync(log, "utf8").matchAll(/^\S+ (\d+) listening/gm)].map((match) => Number(match[1]));
}

/** A running process as one that can be looked for later. */
export function asSeen(pid: number): Seen {
  const found = seen(pid);
  if (found === null) throw new Error(`process ${pid} has ended already`);
  return found;
}
