/** Access to the administration of a store's server: lists of claims, events, state. */

import type { AdminConnection } from "../drivers/server/admin-connection.ts";
import { openAdminConnection } from "../drivers/server/admin-connection.ts";
import type { ClaimView } from "../spi/driver.ts";
import { CommandError, toCommandError } from "./errors.ts";
import type { Store } from "./open-store.ts";

/** The most claims that one command lists. */
export const MAX_LISTED = 10_000;

/**
 * Opens the admin connection of the store's server. Null if the store is not a Holdfast server.
 * @throws CommandError unreachable or refused
 */
export async function openAdmin({ driver, name }: Store): Promise<AdminConnection | null> {
  try {
    return await openAdminConnection(driver);
  } catch (error) {
    throw toCommandError(error, name);
  }
}

/** Like openAdmin(), for a command that needs the connection. @throws CommandError usage */
export async function requireAdmin(store: Store, commandName: string): Promise<AdminConnection> {
  const admin = await openAdmin(store);
  if (admin !== null) return admin;
  throw new CommandError("usage", `${commandName} needs a Holdfast server, and ${store.name} is not one`);
}

/** The claims on keys that begin with `prefix`, in the order of keys and queues; at most MAX_LISTED. @throws CommandError */
export async function listClaims({ driver, name }: Store, prefix: string): Promise<readonly ClaimView[]> {
  try {
    return await driver.list({ prefix }, MAX_LISTED);
  } catch (error) {
    throw toCommandError(error, name);
  }
}
