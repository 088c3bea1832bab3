/** Records locks that an operator takes away: in the log, and in the history of the key. */

import type { RevokeRequest } from "../backend.ts";
import type { Logger } from "../config/logger.ts";
import type { Session } from "../session/session.ts";
import type { EventLog } from "./event-log.ts";

/**
 * Records a revocation right after it was done. The reason is free text; its control characters were removed when it
 * was decoded.
 */
export function recordRevocation(
  { key, token, now, reason }: RevokeRequest,
  { principal, label }: Session,
  log: Logger,
  eventLog: EventLog | null,
): void {
  eventLog?.annotateLast(principal.name, reason);
  const message = now ? "a lock was removed at once" : "a lock was revoked";
  log(message, undefined, { level: "warn", key, token, reason, account: principal.name, label });
}
