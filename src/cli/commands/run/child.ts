/** The command that runs under the lock, as a child process. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import type { Socket } from "node:net";
import { constants as system } from "node:os";
import { listInheritable } from "../../inherited-descriptors.ts";
import { toStartError } from "./executable.ts";

/** How the command ended. */
export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The command, running. */
export interface Child {
  readonly pid: number;
  /** Has it a process group of its own? */
  readonly hasOwnGroup: boolean;
  /** Settles when it has ended, whatever it left behind. */
  readonly exited: Promise<ChildExit>;
  /** Sends a signal to its group, or to it alone where it shares ours. */
  signal(name: NodeJS.Signals): void;
}

/**
 * The first descriptor that the child inherits of ours. Above 15, so that neither scripts nor Node (which closes what it
 * inherits below 16 to its own children) take it from those who work under the lock.
 */
const FIRST_INHERITED_DESCRIPTOR = 19;

/** Is there a terminal that controls us? Then the child must stay in our group, or it could not use the terminal. */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", constants.O_RDONLY | constants.O_NOCTTY));
    return true;
  } catch {
    // ENXIO, ENOENT, EACCES: none of ours
    return false;
  }
}

/** How a command is started. */
export interface ChildOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly hasOwnGroup: boolean;
  /** What it inherits besides input and output. */
  readonly inherited: readonly (Socket | number)[];
  /** Called in the turn in which it was started. */
  readonly onStarted: (pid: number) => void;
}

/**
 * Starts the command with our input and output.
 * @throws CommandError notFound or notExecutable; whatever `started` throws
 */
export async function startChild(
  command: readonly [string, ...string[]],
  { env, hasOwnGroup, inherited, onStarted }: ChildOptions,
): Promise<Child> {
  const [program, ...args] = command;
  const child = spawn(program, args, { stdio: createStdio(inherited), env, detached: hasOwnGroup });
  const { pid } = child;
  if (pid === undefined) {
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => child.once("error", resolve));
    throw toStartError(program, error);
  }
  const exited = new Promise<ChildExit>((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  try {
    onStarted(pid);
  } catch (error) {
    sendSignal(child, hasOwnGroup, "SIGKILL");
    await exited;
    throw error;
  }
  return { pid, hasOwnGroup, exited, signal: (name) => sendSignal(child, hasOwnGroup, name) };
}

/** What a shell would give as $?. */
export function toExitCode({ code, signal }: ChildExit): number {
  return signal === null ? (code ?? 1) : 128 + system.signals[signal];
}

/** Numbers that an outer run's tether and lock have are left to those: its command is what we are. */
function createStdio(inherited: readonly (Socket | number)[]): ("inherit" | "ignore" | Socket | number)[] {
  const stdio: ("inherit" | "ignore" | Socket | number)[] = ["inherit", "inherit", "inherit"];
  const taken = new Set(inherited.length === 0 ? [] : listInheritable(FIRST_INHERITED_DESCRIPTOR - 1));
  for (const stream of inherited) {
    while (stdio.length < FIRST_INHERITED_DESCRIPTOR || taken.has(stdio.length)) stdio.push("ignore");
    stdio.push(stream);
  }
  return stdio;
}

function sendSignal(child: ChildProcess, ownGroup: boolean, name: NodeJS.Signals): void {
  // an ended child's id may be another's by now
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(ownGroup ? -child.pid : child.pid, name);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ESRCH" && code !== "EPERM") throw error;
  }
}
