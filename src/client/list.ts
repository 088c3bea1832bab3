/** Live claims, for tools; loaded when somebody looks. */

import type { ClaimView } from "../spi/driver.ts";
import type { Client } from "./client.ts";
import { inTime } from "./in-time.ts";
import { wrapped } from "./wrap-error.ts";

const MOST_LISTED = 1_000;

/** How long list() waits for the store. */
const LIST_MS = 10_000;

/** See Locks.list(). */
export async function list(client: Client, listed: string): Promise<readonly ClaimView[]> {
  if (typeof listed !== "string") throw new TypeError("prefix must be a string");
  const { settings, driver } = client;
  const { engine } = (await client.acquirer()).host;
  const { prefix } = settings;
  const call = (): Promise<readonly ClaimView[]> => driver.list({ prefix: prefix + listed }, MOST_LISTED);
  const views = await inTime(engine, LIST_MS, call).catch((error: unknown) => {
    throw wrapped(error, "could not list", []);
  });
  return prefix === "" ? views : views.map((view) => withoutPrefix(view, prefix));
}

function withoutPrefix(view: ClaimView, prefix: string): ClaimView {
  const [first, ...rest] = view.holds.map((hold) => ({ ...hold, key: hold.key.slice(prefix.length) }));
  return first === undefined ? view : { ...view, holds: [first, ...rest] };
}
