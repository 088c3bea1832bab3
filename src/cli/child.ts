/** The command that runs under the lock, as a child process. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import type { Socket } from "node:net";
import { constants as system } from "node:os";
import { inheritable } from "./descriptors.ts";
import { startError } from "./program.ts";

/** How the command ended. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The command, running. */
export interface Child {
  readonly pid: number;
  /** Has it a process group of its own? */
  readonly ownGroup: boolean;
  /** Settles when it has ended, whatever it left behind. */
  readonly ended: Promise<Ended>;
  /** Sends a signal to its group, or to it alone where it shares ours. */
  signal(name: NodeJS.Signals): void;
}

/**
 * The first descriptor that the child inherits of ours. Above 15, so that neither scripts nor Node (which closes what it
 * inherits below 16 to its own children) take it from those who work under the lock.
 */
const FIRST_DESCRIPTOR = 19;

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
  readonly ownGroup: boolean;
  /** What it inherits besides input and output. */
  readonly inherits: readonly (Socket | number)[];
  /** Called in the turn in which it was started. */
  readonly started: (pid: number) => void;
}

/**
 * Starts the command with our input and output.
 * @throws CommandError notFound or notExecutable; whatever `started` throws
 */
export async function startChild(
  command: readonly [string, ...string[]],
  { env, ownGroup, inherits, started: isStarted }: ChildOptions,
): Promise<Child> {
  const [program, ...args] = command;
  const started = spawn(program, args, { stdio: stdioWith(inherits), env, detached: ownGroup });
  const { pid } = started;
  if (pid === undefined) {
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => started.once("error", resolve));
    throw startError(program, error);
  }
  const ended = new Promise<Ended>((resolve) => {
    started.once("exit", (code, signal) => resolve({ code, signal }));
  });
  try {
    isStarted(pid);
  } catch (error) {
    signalTo(started, ownGroup, "SIGKILL");
    await ended;
    throw error;
  }
  return { pid, ownGroup, ended, signal: (name) => signalTo(started, ownGroup, name) };
}

/** What a shell would give as $?. */
export function exitCodeOf({ code, signal }: Ended): number {
  return signal === null ? (code ?? 1) : 128 + system.signals[signal];
}

/** Numbers that an outer run's tether and lock have are left to those: its command is what we are. */
function stdioWith(inherits: readonly (Socket | number)[]): ("inherit" | "ignore" | Socket | number)[] {
  const stdio: ("inherit" | "ignore" | Socket | number)[] = ["inherit", "inherit", "inherit"];
  const taken = new Set(inherits.length === 0 ? [] : inheritable(FIRST_DESCRIPTOR - 1));
  for (const one of inherits) {
    while (stdio.length < FIRST_DESCRIPTOR || taken.has(stdio.length)) stdio.push("ignore");
    stdio.push(one);
  }
  return stdio;
}

function signalTo(child: ChildProcess, ownGroup: boolean, name: NodeJS.Signals): void {
  // an ended child's id may be another's by now
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(ownGroup ? -child.pid : child.pid, name);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ESRCH" && code !== "EPERM") throw error;
  }
}
