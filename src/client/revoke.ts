/** Revokes locks; loaded on first use. */

import { UnsupportedError } from "../errors.ts";
import { describeValue } from "../util/duration.ts";
import { cleanLabel, validateKey } from "../util/keys.ts";
import { callWithTimeout } from "../util/timeout.ts";
import type { Client } from "./client.ts";
import { wrapDriverError } from "./driver-error.ts";

/** The options of revoke(). */
export interface RevokeOptions {
  /** Removes the claim at once: the next claim may be granted while the old holder is still working. Default false. */
  readonly now?: boolean | undefined;
  /** The reason, for the store's log and events; at most 256 bytes. Default: none. */
  readonly reason?: string | undefined;
}

/** How long revoke() waits for the store. */
const REVOKE_TIMEOUT_MS = 10_000;

/** See Locks.revoke. */
export async function revoke(client: Client, key: string, token: bigint, options: RevokeOptions): Promise<boolean> {
  const { now, reason } = parseRevokeOptions(options);
  if (typeof token !== "bigint") throw new TypeError(`token must be a bigint, not ${describeValue(token)}`);
  const fullKey = client.settings.prefix + validateKey(key);
  const { driver } = client;
  const { engine } = (await client.getAcquirer()).queues;
  if (driver.revoke === undefined) throw new UnsupportedError(`${driver.name} cannot revoke`, { keys: [key] });
  const target = {
    key: fullKey,
    token,
    now: now === true,
    ...(reason !== undefined && { reason: cleanLabel(reason, "reason") }),
  };
  const call = (): Promise<readonly boolean[]> => (driver.revoke as NonNullable<typeof driver.revoke>)([target]);
  const [wasHeld] = await callWithTimeout(engine.scheduler, REVOKE_TIMEOUT_MS, call).catch((error: unknown) => {
    throw wrapDriverError(error, `could not revoke ${describeValue(key)}`, [key]);
  });
  return wasHeld === true;
}

function parseRevokeOptions(options: unknown): RevokeOptions {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`options of revoke must be an object, not ${describeValue(options)}`);
  }
  const { now, reason, ...unknownOptions } = options as RevokeOptions;
  const [name] = Object.keys(unknownOptions);
  if (name !== undefined) throw new TypeError(`revoke has no option ${describeValue(name)}`);
  if (now !== undefined && typeof now !== "boolean")
    throw new TypeError(`now must be true or false, not ${describeValue(now)}`);
  return { ...(now !== undefined && { now }), ...(reason !== undefined && { reason }) };
}
