/** The client's first line on a connection. */

import { readFileSync } from "node:fs";
import type { LastSeenState } from "../../protocol/handshake.ts";
import { encodeClientHello, PACKAGE_VERSION, PROTOCOL_VERSION } from "../../protocol/handshake.ts";
import type { ServerOptions } from "./driver.ts";

/**
 * The first line of a connection of this session. The credential is read for each connection, since it may have been
 * rotated.
 */
export function createClientHello(
  { label = "", credential }: ServerOptions,
  sessionId: string,
  seen: LastSeenState | null,
): string {
  return encodeClientHello({
    protocol: PROTOCOL_VERSION,
    version: PACKAGE_VERSION,
    label,
    session: sessionId,
    tether: false,
    pid: process.pid,
    pidStart: readProcessStartTime(),
    credential: typeof credential === "function" ? credential() : (credential ?? null),
    seen,
  });
}

let processStartTime: string | null | undefined;

/** The start time of this process according to /proc; null where there is no /proc. */
function readProcessStartTime(): string | null {
  if (processStartTime !== undefined) return processStartTime;
  try {
    const stat = readFileSync("/proc/self/stat", "latin1");
    processStartTime = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? null;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    processStartTime = null;
  }
  return processStartTime;
}
