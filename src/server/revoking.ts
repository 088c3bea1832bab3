/** What an operator takes away by force is told: in the log, and to those who look at the key. */

import type { Revocation } from "./backend.ts";
import type { Log } from "./logging.ts";
import type { Record } from "./record.ts";
import type { Session } from "./session.ts";

/** Notes that a revocation was done just now. The reason is text of people: it was freed of control characters at the border. */
export function tellRevoked(
  { key, token, now, reason }: Revocation,
  { principal, label }: Session,
  log: Log,
  record: Record | null,
): void {
  record?.explain(principal.name, reason);
  const what = now ? "a lock was taken away at once" : "a lock was revoked";
  log(what, undefined, { level: "warn", key, token, reason, account: principal.name, label });
}
