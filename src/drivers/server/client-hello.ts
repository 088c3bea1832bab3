/** The client's first line on a connection. */

import type { LastSeenState } from "../../protocol/handshake.ts";
import { encodeClientHello, PACKAGE_VERSION, PROTOCOL_VERSION } from "../../protocol/handshake.ts";
import { readStartTime } from "../../util/process-info.ts";
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
    pidStart: readStartTime("self"),
    credential: typeof credential === "function" ? credential() : (credential ?? null),
    seen,
  });
}
