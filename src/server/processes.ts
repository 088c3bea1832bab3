/** What the system says of a process, named by its id and its start time, since ids are used again. */

import { readFileSync } from "node:fs";
import type { ProcessState } from "./session.ts";

/** Field 22 of /proc/PID/stat, in clock ticks since the machine was started; the name in field 2 may contain anything. */
const START_FIELD = 22;

/** Is the process with that id and start time still there? */
export function processState(pid: number, pidStart: string): ProcessState {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT" && code !== "ESRCH") return "unknown";
    return hasProc() ? "gone" : "unknown";
  }
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[START_FIELD - 3] !== pidStart) return "gone";
  const state = fields[0];
  if (state === "Z" || state === "X") return "gone";
  return state === "T" || state === "t" ? "stopped" : "running";
}

function hasProc(): boolean {
  try {
    readFileSync("/proc/self/stat", "latin1");
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}
