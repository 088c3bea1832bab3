/** Our first line to a server: who is calling. */

import { readFileSync } from "node:fs";
import type { SeenState } from "../../protocol/hello.ts";
import { encodeHello, PROTOCOL, VERSION } from "../../protocol/hello.ts";
import type { ServerOptions } from "./driver.ts";

/** The first line of a connection of this session. The credential is asked for anew each time: it may have been changed. */
export function greeting({ label = "", credential }: ServerOptions, session: string, seen: SeenState | null): string {
  return encodeHello({
    protocol: PROTOCOL,
    version: VERSION,
    label,
    session,
    tether: false,
    pid: process.pid,
    pidStart: ownStart(),
    credential: typeof credential === "function" ? credential() : (credential ?? null),
    seen,
  });
}

let start: string | null | undefined;

/** When this process was started, as /proc says it; null where there is none. */
function ownStart(): string | null {
  if (start !== undefined) return start;
  try {
    const stat = readFileSync("/proc/self/stat", "latin1");
    start = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? null;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    start = null;
  }
  return start;
}
