/** Lists and revokes claims, for operators; loaded on first use. */

import { UnsupportedError, wrapStoreError } from "../errors.ts";
import type { ClaimInfo } from "../spi/claim-info.ts";
import { toClaimInfo } from "../spi/claim-info.ts";
import type { ClaimView, Page } from "../spi/driver.ts";
import { describeValue } from "../util/duration.ts";
import { publicTag } from "../util/ids.ts";
import { cleanLabel, validateKey } from "../util/keys.ts";
import { booleanRule, noProblem, validateOptions } from "../util/validate.ts";
import type { Client } from "./client.ts";

const MAX_LISTED = 1_000;

/** How long list() and revoke() wait for the store. */
const TIMEOUT_MS = 10_000;

/** The options of revoke(). */
export interface RevokeOptions {
  /** Removes the claim at once: the next claim may be granted while the old holder is still working. Default false. */
  readonly now?: boolean | undefined;
  /** The reason, for the store's log and events; at most 256 bytes. Default: none. */
  readonly reason?: string | undefined;
}

/** See Locks.list(). */
export async function listClaims(client: Client, keyPrefix: string): Promise<readonly ClaimInfo[]> {
  if (typeof keyPrefix !== "string") throw new TypeError("prefix must be a string");
  const { settings, driver } = client;
  const { engine, cachedLocks, deferredStarts } = await client.open();
  deferredStarts.flush(); // a list shows the requests that were made before it
  const { prefix } = settings;
  const call = (): Promise<Page<ClaimView>> => driver.list({ prefix: prefix + keyPrefix }, { max: MAX_LISTED });
  const { items } = await engine.scheduler.waitForCall(TIMEOUT_MS, call).catch((error: unknown) => {
    throw wrapStoreError(error, "could not list claims", []);
  });
  const now = engine.clock.now();
  const unusedSince = new Map(
    cachedLocks.listIdle().map(({ activeClaim, idleSince }) => [publicTag(activeClaim.claim.id), idleSince]),
  );
  return items.map((view) => {
    const info = toClaimInfo(view, prefix);
    const idleSince = unusedSince.get(view.tag);
    return idleSince == null ? info : { ...info, unusedMs: Math.floor(now - idleSince) };
  });
}

/** See Locks.revoke. */
export async function revoke(client: Client, key: string, token: bigint, options: RevokeOptions): Promise<boolean> {
  validateOptions("revoke", options, { now: booleanRule, reason: noProblem });
  const { now, reason } = options;
  if (typeof token !== "bigint") throw new TypeError(`token must be a bigint, not ${describeValue(token)}`);
  const fullKey = client.settings.prefix + validateKey(key);
  const { driver } = client;
  const { engine } = await client.open();
  if (driver.revoke === undefined) throw new UnsupportedError(`${driver.name} cannot revoke`, { keys: [key] });
  const target = {
    key: fullKey,
    token,
    now: now === true,
    ...(reason !== undefined && { reason: cleanLabel(reason, "reason") }),
  };
  const call = (): Promise<readonly boolean[]> => (driver.revoke as NonNullable<typeof driver.revoke>)([target]);
  const [wasHeld] = await engine.scheduler.waitForCall(TIMEOUT_MS, call).catch((error: unknown) => {
    throw wrapStoreError(error, `could not revoke ${describeValue(key)}`, [key]);
  });
  return wasHeld === true;
}
