/** The command that runs under the lock, as a child process with its environment. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import type { Socket } from "node:net";
import { constants as system } from "node:os";
import type { RunFile } from "../../../server/runs/run-file-writer.ts";
import { redactUrl } from "../../../util/redact-url.ts";
import { listInheritable } from "../../inherited-descriptors.ts";
import { resolveModulePath } from "../../load-driver.ts";
import { REFERENCE_VARIABLE } from "../../references.ts";
import type { StoreFlags } from "../../store-choice.ts";
import { chooseStore } from "../../store-choice.ts";
import { toStartError } from "./executable.ts";
import { withProcessId } from "./nested-runs.ts";
import { ANCESTORS_VARIABLE, readReferences } from "./outer-locks.ts";
import type { RunLock } from "./run-lock.ts";

/** How the command ended. */
export interface CommandExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The command, running. */
export interface RunningCommand {
  readonly pid: number;
  /** Does it have its own process group? */
  readonly hasOwnGroup: boolean;
  /** Settles when the command has ended, even if it left processes behind. */
  readonly exited: Promise<CommandExit>;
  /** Sends a signal to its process group; to the command alone if it shares our group. */
  signal(name: NodeJS.Signals): void;
}

/**
 * The first descriptor that the command inherits from us. It is above 15: scripts use low numbers, and Node closes
 * inherited descriptors below 16 for its own children. Then the processes that work under the lock would not inherit
 * it.
 */
const FIRST_INHERITED_DESCRIPTOR = 19;

/**
 * Is there a controlling terminal? Then the command must stay in our process group: outside it could not use the
 * terminal.
 */
export function hasTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", constants.O_RDONLY | constants.O_NOCTTY));
    return true;
  } catch {
    // ENXIO, ENOENT, EACCES: no controlling terminal
    return false;
  }
}

export interface CommandOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly hasOwnGroup: boolean;
  /** The command inherits it: the session lasts as long as the command. */
  readonly keepSessionSocket: Socket | null;
  /** The command inherits its lock. */
  readonly runFile: RunFile | null;
}

/**
 * Starts the command with our standard input, output and error.
 * @throws CommandError notFound or notExecutable; StateError, after killing the command, if it cannot
 * be added to the run file
 */
export async function startCommand(
  command: readonly [string, ...string[]],
  { env, hasOwnGroup, keepSessionSocket, runFile }: CommandOptions,
): Promise<RunningCommand> {
  const [program, ...args] = withProcessId(command, process.env);
  const inherited = [
    ...(keepSessionSocket === null ? [] : [keepSessionSocket]),
    ...(runFile === null ? [] : [runFile.descriptor]),
  ];
  const child = spawn(program, args, { stdio: createStdio(inherited), env, detached: hasOwnGroup });
  const { pid } = child;
  if (pid === undefined) {
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => child.once("error", resolve));
    throw toStartError(command[0], error);
  }
  const exited = new Promise<CommandExit>((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  try {
    // synchronously after the start: a restarted server must find the command
    runFile?.addProcess("command", pid);
  } catch (error) {
    sendSignal(child, hasOwnGroup, "SIGKILL");
    await exited;
    throw error;
  }
  return { pid, hasOwnGroup, exited, signal: (name) => sendSignal(child, hasOwnGroup, name) };
}

/** The value that a shell has in $?. */
export function toExitCode({ code, signal }: CommandExit): number {
  return signal === null ? (code ?? 1) : 128 + system.signals[signal];
}

/**
 * Skips the numbers of descriptors inherited from an outer run: the command must inherit those, too, to keep the outer
 * lock.
 */
function createStdio(inherited: readonly (Socket | number)[]): ("inherit" | "ignore" | Socket | number)[] {
  const stdio: ("inherit" | "ignore" | Socket | number)[] = ["inherit", "inherit", "inherit"];
  const usedNumbers = new Set(inherited.length === 0 ? [] : listInheritable(FIRST_INHERITED_DESCRIPTOR - 1));
  for (const stream of inherited) {
    while (stdio.length < FIRST_INHERITED_DESCRIPTOR || usedNumbers.has(stdio.length)) stdio.push("ignore");
    stdio.push(stream);
  }
  return stdio;
}

function sendSignal(child: ChildProcess, ownGroup: boolean, name: NodeJS.Signals): void {
  // the process id of an ended command may belong to another process by now
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(ownGroup ? -child.pid : child.pid, name);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ESRCH" && code !== "EPERM") throw error;
  }
}

/**
 * The environment of `holdfast` itself, with the held keys, their tokens, the reference and the store (the value of
 * --url, without its password, or the absolute path of --driver), but without the credentials of `holdfast`: with them
 * the command could act in the name of this user. A url in the environment was meant for every program that inherits it,
 * and is passed on unchanged.
 */
export function createCommandEnvironment(env: NodeJS.ProcessEnv, lock: RunLock, flags: StoreFlags): NodeJS.ProcessEnv {
  const variables: NodeJS.ProcessEnv = {};
  for (const [name, value] of Object.entries(env)) if (!name.startsWith("HOLDFAST_CREDENTIAL")) variables[name] = value;
  if (flags.url !== undefined) {
    variables.HOLDFAST_URL = redactUrl(flags.url);
    delete variables.HOLDFAST_DRIVER;
  }
  const { driver } = chooseStore(flags, env);
  if (driver !== undefined) {
    variables.HOLDFAST_DRIVER = resolveModulePath(driver);
    delete variables.HOLDFAST_URL;
  }
  // a key contains no line feed, so one key per line is unambiguous
  variables.HOLDFAST_KEY = lock.keys.join("\n");
  if (lock.token === null) delete variables.HOLDFAST_TOKEN;
  else variables.HOLDFAST_TOKEN = String(lock.token);
  if (lock.tokens === null) delete variables.HOLDFAST_TOKENS;
  else variables.HOLDFAST_TOKENS = lock.tokens.join("\n");
  const outerReferences = readReferences(env).filter((reference) => reference !== lock.reference);
  variables[REFERENCE_VARIABLE] = lock.reference;
  if (outerReferences.length === 0) delete variables[ANCESTORS_VARIABLE];
  else variables[ANCESTORS_VARIABLE] = outerReferences.join(" ");
  return variables;
}
