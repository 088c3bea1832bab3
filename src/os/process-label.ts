/** The default label of a lock: its user, machine, process id and program. */

import { hostname, userInfo } from "node:os";
import { basename } from "node:path";
import { cleanLabel } from "../util/keys.ts";

/** `user@host pid 4121 (rsync)`. It has the name of the program, never the arguments, which may contain secrets. */
export function createLabel(program: string, pid: number = process.pid): string {
  return cleanLabel(`${readUserName()}@${hostname()} pid ${pid} (${basename(program)})`);
}

function readUserName(): string {
  try {
    return userInfo().username;
  } catch {
    // the user id has no entry in the password database, as in some containers
    return `uid ${process.getuid?.() ?? "?"}`;
  }
}
