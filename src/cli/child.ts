/** The command that runs under the lock, as a child process. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import type { Socket } from "node:net";
import { constants as system } from "node:os";
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
 * The descriptor the tether has in the child. Above 15, so that neither scripts nor Node (which closes what it inherits
 * below 16 to its own children) take it from those who work under the lock.
 */
const TETHER_DESCRIPTOR = 19;

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

/**
 * Starts the command with our input and output. The tether is the child's, too, afterwards.
 * @throws CommandError notFound or notExecutable
 */
export async function startChild(
  command: readonly [string, ...string[]],
  options: { readonly env: NodeJS.ProcessEnv; readonly ownGroup: boolean; readonly tether: Socket | null },
): Promise<Child> {
  const [program, ...args] = command;
  const { env, ownGroup, tether } = options;
  const started = spawn(program, args, { stdio: stdioWith(tether), env, detached: ownGroup });
  const { pid } = started;
  if (pid === undefined) {
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => started.once("error", resolve));
    throw startError(program, error);
  }
  const ended = new Promise<Ended>((resolve) => {
    started.once("exit", (code, signal) => resolve({ code, signal }));
  });
  return { pid, ownGroup, ended, signal: (name) => signalTo(started, ownGroup, name) };
}

/** What a shell would give as $?. */
export function exitCodeOf({ code, signal }: Ended): number {
  return signal === null ? (code ?? 1) : 128 + system.signals[signal];
}

function stdioWith(tether: Socket | null): ("inherit" | "ignore" | Socket)[] {
  const stdio: ("inherit" | "ignore" | Socket)[] = ["inherit", "inherit", "inherit"];
  if (tether === null) return stdio;
  while (stdio.length < TETHER_DESCRIPTOR) stdio.push("ignore");
  return [...stdio, tether];
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
