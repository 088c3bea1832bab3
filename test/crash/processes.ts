/** Processes as Linux shows them, so that a test can tell who is left of what it started. */

import { readdirSync, readFileSync } from "node:fs";

/** A process: its id counts only together with its start, since ids are used again. */
export type Seen = { readonly pid: number; readonly start: string };

type Stat = Seen & { readonly state: string; readonly parent: number };

/** Every process that has not ended; those nobody has reaped yet have. */
function living(): Stat[] {
  return readdirSync("/proc").flatMap((name) => {
    const stat = /^\d+$/.test(name) ? statOf(Number(name)) : null;
    return stat === null ? [] : [stat];
  });
}

/** The process of that id as it is now; null if it has ended. */
export function seen(pid: number): Seen | null {
  return statOf(pid);
}

export function isLiving({ pid, start }: Seen): boolean {
  return statOf(pid)?.start === start;
}

/** Everything below a process, not itself. */
export function below(pid: number): Seen[] {
  const all = living();
  const found = new Set([pid]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const { pid: one, parent } of all) {
      if (!found.has(parent) || found.has(one)) continue;
      found.add(one);
      grown = true;
    }
  }
  found.delete(pid);
  return all.filter((one) => found.has(one.pid));
}

/** Those that have this text in their environment, as all have that were started in a folder of that name. */
export function withInEnvironment(text: string): Seen[] {
  return living().filter(({ pid }) => read(`/proc/${pid}/environ`).includes(text));
}

/** Its arguments, with blanks between; empty once it has ended. */
export function commandOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
}

/** Sends a signal; a process that has ended meanwhile needs none. */
export function signal({ pid, start }: Seen, name: NodeJS.Signals): void {
  if (statOf(pid)?.start !== start) return;
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function statOf(pid: number): Stat | null {
  const text = read(`/proc/${pid}/stat`);
  const [state = "", parent = "", ...rest] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return /^[A-WY]$/.test(state) ? { pid, state, parent: Number(parent), start: rest[17] ?? "" } : null;
}

/** Empty when the process has ended, or is not ours to look into. */
function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES" || code === "EPERM") return "";
    throw error;
  }
}
