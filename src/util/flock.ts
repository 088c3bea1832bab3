/**
 * The kernel's lock on an open file, flock(2)'s, by way of flock(1): Node has no call for it. The lock belongs to the open
 * file, not to a process: it stays when flock(1) has ended, and lasts until the last process that inherited the
 * descriptor has closed it.
 */

import { spawn } from "node:child_process";

/** Every process of a machine must find the same flock(1), whatever its PATH. */
const FLOCK_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/**
 * Locks our descriptor, without waiting. taken: by another; missing: there is no flock(1) here.
 * @throws (rejects) Error if flock(1) cannot do it, as on a file system without locks
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
      else reject(new Error(`flock(1) ended with ${signal ?? code}: ${stderrText.trim()}`));
    });
  });
}
