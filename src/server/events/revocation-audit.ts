/** What an operator takes away by force is told: in the log, and to those who look at the key. */

import type { RevokeRequest } from "../backend.ts";
import type { Logger } from "../config/logger.ts";
import type { Session } from "../session/session.ts";
import type { EventLog } from "./event-log.ts";

/** Notes that a revocation was done just now. The reason is text of people: it was freed of control characters at the border. */
export function recordRevocation(
  { key, token, now, reason }: RevokeRequest,
  { principal, label }: Session,
  log: Logger,
  eventLog: EventLog | null,
): void {
  eventLog?.annotateLast(principal.name, reason);
  const message = now ? "a lock was taken away at once" : "a lock was revoked";
  log(message, undefined, { level: "warn", key, token, reason, account: principal.name, label });
}
