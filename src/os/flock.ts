/**
 * Takes a flock(2) lock through flock(1), since Node has no call for it. The lock belongs to the open file, not to a process:
 * it remains after flock(1) has ended, until the last process that inherited the descriptor has closed it.
 */

import { spawn } from "node:child_process";

/** A fixed search path, so that all processes of a machine find the same flock(1) whatever their PATH is. */
const FLOCK_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/**
 * Locks a descriptor of this process, without waiting. taken: another open file has the lock; missing: flock(1) was not found.
 * Rejects if flock(1) fails, for example on a file system without locks.
 */
export function flock(
  descriptor: number,
  mode: "exclusive" | "shared",
  program = "flock",
): Promise<"locked" | "taken" | "missing"> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, ["-n", mode === "exclusive" ? "-x" : "-s", "3"], {
      stdio: ["ignore", "ignore", "pipe", descriptor],
      env: { PATH: FLOCK_PATH },
    });
    let stderrText = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderrText += text;
    });
    child.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") resolve("missing");
      else reject(error);
    });
    child.once("close", (code, signal) => {
      if (code === 0 || code === 1) resolve(code === 0 ? "locked" : "taken");
      else reject(new Error(`flock(1) failed with ${signal ?? code}: ${stderrText.trim()}`));
    });
  });
}
