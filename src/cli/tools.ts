/** A store together with what its server tells people besides locks. */

import type { ToolLink } from "../drivers/server/tool-link.ts";
import { openTools } from "../drivers/server/tool-link.ts";
import type { ClaimView } from "../spi/driver.ts";
import { CommandError, commandError } from "./failure.ts";
import type { Store } from "./store.ts";

/** Most claims that one command looks at. */
export const MOST_LISTED = 10_000;

/**
 * The tools of the store's server; null: it has none, as no server of ours is behind the store.
 * @throws CommandError unreachable or refused
 */
export async function toolsOf({ driver, name }: Store): Promise<ToolLink | null> {
  try {
    return await openTools(driver);
  } catch (error) {
    throw commandError(error, name);
  }
}

/** As toolsOf(), for a command that can do nothing without. @throws CommandError usage */
export async function neededTools(store: Store, what: string): Promise<ToolLink> {
  const tools = await toolsOf(store);
  if (tools !== null) return tools;
  throw new CommandError("usage", `${what} needs a Holdfast server: ${store.name} is none and tells nothing of it`);
}

/** Claims on keys that begin with prefix, in order; at most MOST_LISTED. @throws CommandError */
export async function claimsOf({ driver, name }: Store, prefix: string): Promise<readonly ClaimView[]> {
  try {
    return await driver.list({ prefix }, MOST_LISTED);
  } catch (error) {
    throw commandError(error, name);
  }
}
