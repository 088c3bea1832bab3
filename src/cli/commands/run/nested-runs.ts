/**
 * Runs inside a run. If the wrapper of a nested run is killed, its watchdog ends the nested command, but the command of
 * the outer run, which waited for that wrapper only, may end first. If that watchdog is killed or stopped, too, the
 * nested command works on. So an outer run keeps its lock as long as either of them is alive and its wrapper is not.
 * Both have another parent by then, and sessions of their own, so they are found by a variable in their environment.
 *
 * The wait has no deadline: the watchdog has one, and a command without a watchdog ends by itself, or by the signals
 * that the outer run passes on.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { ProcessId, ProcessState } from "../../../os/process-info.ts";
import { findProcessesByVariable, probeProcess, readParentage, readStartTime } from "../../../os/process-info.ts";
import { publicTag } from "../../../util/ids.ts";
import { readReferences } from "./outer-locks.ts";

/**
 * In the environment of a nested run's watchdog and command: "watchdog", or the process id of the command; the start
 * time of its wrapper; and a tag for the lock of each run around it. Processes that the command starts inherit it, with
 * another id.
 */
export const NESTED_RUN_VARIABLE = "HOLDFAST_NESTED_RUN";
const WATCHDOG = "watchdog";
const POLL_MS = 50;

/** What a watchdog needs in its environment. Empty outside of runs, and where the system does not show processes. */
export function watchdogEnvironment(env: NodeJS.ProcessEnv): { readonly [NESTED_RUN_VARIABLE]?: string } {
  const description = describeRun(env);
  return description === null ? {} : { [NESTED_RUN_VARIABLE]: `${WATCHDOG} ${description}` };
}

/**
 * The command of a nested run, started by a shell that becomes it and knows the process id before; the command itself
 * outside of runs, and where the system does not show processes. `env`: that of the wrapper.
 */
export function withProcessId(
  command: readonly [string, ...string[]],
  env: NodeJS.ProcessEnv,
): readonly [string, ...string[]] {
  const description = describeRun(env);
  if (description === null) return command;
  return ["sh", "-c", `export ${NESTED_RUN_VARIABLE}="$$ ${description}"; exec "$@"`, "holdfast", ...command];
}

/** The start time of this wrapper and the tags of the runs around it; both have no character that a shell knows. */
function describeRun(env: NodeJS.ProcessEnv): string | null {
  const outerTags = readReferences(env).map(publicTag);
  const start = outerTags.length === 0 ? null : readStartTime("self");
  return start === null ? null : [start, ...outerTags].join(" ");
}

/** Settles when no killed run inside the run with this reference has a process at work. `onWait`: one has. */
export async function waitForNestedRuns(reference: string, onWait: () => void): Promise<void> {
  if (findKilledRuns(reference).length === 0) return;
  onWait();
  while (findKilledRuns(reference).length > 0) await delay(POLL_MS);
}

/** Sends a signal to the commands of the killed runs inside the run with this reference. */
export function signalNestedRuns(reference: string, name: NodeJS.Signals): void {
  for (const { pid, isCommand } of findKilledRuns(reference)) {
    try {
      if (isCommand) process.kill(pid, name);
    } catch {
      // it has ended
    }
  }
}

interface NestedProcess {
  readonly pid: number;
  readonly isCommand: boolean;
}

/** The watchdogs and commands at work of the killed runs inside the run with this reference. */
function findKilledRuns(reference: string): readonly NestedProcess[] {
  const outerTag = publicTag(reference);
  try {
    return findProcessesByVariable(NESTED_RUN_VARIABLE).flatMap(({ pid, start, value }) => {
      const [role = "", wrapperStart = "", ...outerTags] = value.split(" ");
      const isCommand = role === String(pid);
      const isKilled = outerTags.includes(outerTag) && isKilledRun({ pid, start }, isCommand, wrapperStart);
      return isKilled ? [{ pid, isCommand }] : [];
    });
  } catch {
    // no descriptor is available: the run must end nevertheless
    return [];
  }
}

/** Is the process a nested run's command or watchdog, and at work after its wrapper has been killed? */
function isKilledRun({ pid, start }: ProcessId, isCommand: boolean, wrapperStart: string): boolean {
  const parentage = readParentage(pid);
  // the timer of a watchdog has the same environment
  if (parentage === null || !(isCommand || parentage.isSessionLeader)) return false;
  // a run that the command left in the background does not keep the lock
  if (isAlive(probeProcess(parentage.parent, wrapperStart))) return false;
  const state = probeProcess(pid, start);
  // a stopped watchdog ends nothing, but a stopped command may continue
  return isCommand ? isAlive(state) : state === "running";
}

function isAlive(state: ProcessState): boolean {
  return state === "running" || state === "stopped";
}
