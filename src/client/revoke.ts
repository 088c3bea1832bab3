/** Asks the holder of a lock to go (design A.24); loaded when somebody does. */

import { shown } from "../duration.ts";
import { UnsupportedError } from "../errors.ts";
import { checkedKey, checkedLabel } from "../keys.ts";
import type { Client } from "./client.ts";
import { inTime } from "./in-time.ts";
import { wrapped } from "./wrap-error.ts";

/** What may be said of one revoke. */
export interface RevokeOptions {
  /** Removes the claim at once: the next one may be granted while the old holder is still working. Default false. */
  readonly now?: boolean | undefined;
  /** Why, for the store's log and events; at most 256 bytes. Default: none. */
  readonly reason?: string | undefined;
}

/** How long revoke() waits for the store. */
const REVOKE_MS = 10_000;

/** See Locks.revoke. */
export async function revoke(client: Client, key: string, token: bigint, options: RevokeOptions): Promise<boolean> {
  const { now, reason } = checked(options);
  if (typeof token !== "bigint") throw new TypeError(`token must be a bigint, not ${shown(token)}`);
  const whole = client.settings.prefix + checkedKey(key);
  const { driver } = client;
  const { engine } = (await client.acquirer()).host;
  if (driver.revoke === undefined) throw new UnsupportedError(`${driver.name} cannot revoke`, { keys: [key] });
  const target = {
    key: whole,
    token,
    now: now === true,
    ...(reason !== undefined && { reason: checkedLabel(reason, "reason") }),
  };
  const call = (): Promise<readonly boolean[]> => (driver.revoke as NonNullable<typeof driver.revoke>)([target]);
  const [there] = await inTime(engine, REVOKE_MS, call).catch((error: unknown) => {
    throw wrapped(error, `could not revoke ${shown(key)}`, [key]);
  });
  return there === true;
}

function checked(options: unknown): RevokeOptions {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`options of revoke must be an object, not ${shown(options)}`);
  }
  const { now, reason, ...unknown } = options as RevokeOptions;
  const [name] = Object.keys(unknown);
  if (name !== undefined) throw new TypeError(`revoke has no option ${shown(name)}`);
  if (now !== undefined && typeof now !== "boolean")
    throw new TypeError(`now must be true or false, not ${shown(now)}`);
  return { ...(now !== undefined && { now }), ...(reason !== undefined && { reason }) };
}
