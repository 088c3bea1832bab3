/** A store together with what its server tells people besides locks. */

import type { AdminConnection } from "../drivers/server/admin-connection.ts";
import { openAdminConnection } from "../drivers/server/admin-connection.ts";
import type { ClaimView } from "../spi/driver.ts";
import { CommandError, toCommandError } from "./errors.ts";
import type { Store } from "./open-store.ts";

/** Most claims that one command looks at. */
export const MAX_LISTED = 10_000;

/**
 * The tools of the store's server; null: it has none, as no server of ours is behind the store.
 * @throws CommandError unreachable or refused
 */
export async function openAdmin({ driver, name }: Store): Promise<AdminConnection | null> {
  try {
    return await openAdminConnection(driver);
  } catch (error) {
    throw toCommandError(error, name);
  }
}

/** As openAdmin(), for a command that can do nothing without. @throws CommandError usage */
export async function requireAdmin(store: Store, commandName: string): Promise<AdminConnection> {
  const admin = await openAdmin(store);
  if (admin !== null) return admin;
  throw new CommandError(
    "usage",
    `${commandName} needs a Holdfast server: ${store.name} is none and tells nothing of it`,
  );
}

/** Claims on keys that begin with prefix, in order; at most MAX_LISTED. @throws CommandError */
export async function listClaims({ driver, name }: Store, prefix: string): Promise<readonly ClaimView[]> {
  try {
    return await driver.list({ prefix }, MAX_LISTED);
  } catch (error) {
    throw toCommandError(error, name);
  }
}
