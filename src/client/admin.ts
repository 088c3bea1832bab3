/** Lists live claims; loaded on first use. */

import type { ClaimView } from "../spi/driver.ts";
import { callWithTimeout } from "../util/timeout.ts";
import type { Client } from "./client.ts";
import { wrapDriverError } from "./driver-error.ts";

const MAX_LISTED = 1_000;

/** How long list() waits for the store. */
const LIST_TIMEOUT_MS = 10_000;

/** See Locks.list(). */
export async function listClaims(client: Client, keyPrefix: string): Promise<readonly ClaimView[]> {
  if (typeof keyPrefix !== "string") throw new TypeError("prefix must be a string");
  const { settings, driver } = client;
  const { engine } = (await client.getAcquirer()).queues;
  const { prefix } = settings;
  const call = (): Promise<readonly ClaimView[]> => driver.list({ prefix: prefix + keyPrefix }, MAX_LISTED);
  const views = await callWithTimeout(engine.scheduler, LIST_TIMEOUT_MS, call).catch((error: unknown) => {
    throw wrapDriverError(error, "could not list claims", []);
  });
  return prefix === "" ? views : views.map((view) => stripPrefix(view, prefix));
}

function stripPrefix(view: ClaimView, prefix: string): ClaimView {
  const [first, ...rest] = view.locks.map((spec) => ({ ...spec, key: spec.key.slice(prefix.length) }));
  return first === undefined ? view : { ...view, locks: [first, ...rest] };
}
