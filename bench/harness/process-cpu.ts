/** The CPU that processes have used, as Linux counts it. */

import { readFileSync } from "node:fs";
import { descendants } from "../../src/torture/processes/process-tree.ts";
import { sum } from "./stats.ts";

const MICROS_PER_TICK = 10_000;
/**
 * The fields of /proc/PID/stat that follow the name of the program: own time as user and in the kernel; the same of
 * ended children.
 */
const OWN_FIELDS = [11, 12];
const ENDED_CHILDREN_FIELDS = [13, 14];

/** Microseconds of CPU that a process has used. */
export function processCpuMicros(pid: number): number {
  return readFields(pid, OWN_FIELDS);
}

/**
 * The same with all that it has forked, of which some may have ended: a PostgreSQL has a process for each connection.
 */
export function processTreeCpuMicros(pid: number): number {
  const fields = [...OWN_FIELDS, ...ENDED_CHILDREN_FIELDS];
  return readFields(pid, fields) + sum(descendants(pid).map((child) => readFieldsIfAlive(child.pid, fields)));
}

/** 0 if it has ended meanwhile: its parent then has its figures. */
function readFieldsIfAlive(pid: number, fields: readonly number[]): number {
  try {
    return readFields(pid, fields);
  } catch (error) {
    if (/^(?:ENOENT|ESRCH)$/.test((error as NodeJS.ErrnoException).code ?? "")) return 0;
    throw error;
  }
}

function readFields(pid: number, fields: readonly number[]): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const values = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return sum(fields.map((field) => Number(values[field]))) * MICROS_PER_TICK;
}
