/** Revokes a lock for a request, and logs it. */

import type { Principal } from "../../auth/access-control.ts";
import type { RevokeTarget } from "../../spi/driver.ts";
import type { GatewayService } from "../service.ts";
import { Problem } from "./problem.ts";

/** @throws RequestError FORBIDDEN without the right; Problem NOT_HELD if no claim holds the key with that token */
export async function revokeLock(
  { store, log }: GatewayService,
  principal: Principal,
  target: Required<RevokeTarget>,
): Promise<void> {
  if (!(await store.revoke(principal, target)))
    throw new Problem("NOT_HELD", "unknown", "no claim holds this key with this token; nothing was changed");
  // the lock server of this process has logged it
  if (store.isOwnServer) return;
  const { key, token, reason, now } = target;
  const message = now ? "a lock was removed at once" : "a lock was revoked";
  log(message, undefined, { level: "warn", key, token, reason, account: principal.name });
}
