/**
 * Watchdogs of runs inside runs. If the wrapper of a nested run is killed, its watchdog ends the nested command, but the
 * command of the outer run, which waited for that wrapper only, may end first. So an outer run keeps its lock as long as such
 * a watchdog is at work. The watchdog and what it watches have another parent by then, and sessions of their own, so it
 * is found by its environment.
 *
 * The wait has no deadline because the watchdog has one: it ends after its grace, and a second for what it cannot kill.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { ProcessId, ProcessState } from "../../../os/process-info.ts";
import { findProcessesByVariable, probeProcess, readParentage, readStartTime } from "../../../os/process-info.ts";
import { publicTag } from "../../../util/ids.ts";
import { readReferences } from "./inherited-locks.ts";

/** In the environment of a watchdog: the start time of its wrapper, and a tag for the lock of each run around it. */
const WATCHDOG_VARIABLE = "HOLDFAST_WATCHDOG";
const POLL_MS = 50;

/** By this the outer runs find a watchdog. Empty outside of runs, and where the system does not show processes. */
export function watchdogEnvironment(env: NodeJS.ProcessEnv): { readonly [WATCHDOG_VARIABLE]?: string } {
  const outerTags = readReferences(env).map(publicTag);
  const start = outerTags.length === 0 ? null : readStartTime("self");
  return start === null ? {} : { [WATCHDOG_VARIABLE]: [start, ...outerTags].join(" ") };
}

/** Settles when no watchdog of a killed run inside the run with this reference is at work. `onWait`: there is one. */
export async function waitForNestedWatchdogs(reference: string, onWait: () => void): Promise<void> {
  const tag = publicTag(reference);
  if (!isAnyAtWork(tag)) return;
  onWait();
  while (isAnyAtWork(tag)) await delay(POLL_MS);
}

function isAnyAtWork(outerTag: string): boolean {
  try {
    return findProcessesByVariable(WATCHDOG_VARIABLE).some(
      ({ pid, start, value }) => value.split(" ").includes(outerTag) && isAtWork({ pid, start }, value),
    );
  } catch {
    // no descriptor is available: the run must end nevertheless
    return false;
  }
}

function isAtWork({ pid, start }: ProcessId, variable: string): boolean {
  const parentage = readParentage(pid);
  // the timer of a watchdog has the same environment
  if (parentage?.isSessionLeader !== true) return false;
  const [wrapperStart = ""] = variable.split(" ");
  // a run that the command left in the background does not keep the lock, and a stopped watchdog ends nothing
  return !isAlive(probeProcess(parentage.parent, wrapperStart)) && probeProcess(pid, start) === "running";
}

function isAlive(state: ProcessState): boolean {
  return state === "running" || state === "stopped";
}
