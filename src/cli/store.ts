/** The store a command works on, opened, with the words by which messages name it. */

import { setTimeout as delay } from "node:timers/promises";
import { Client } from "../client/client.ts";
import { driverFor } from "../client/drivers.ts";
import type { Locks } from "../client/locks.ts";
import { locksOf } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { settingsOf } from "../client/options.ts";
import type { Tether } from "../drivers/server/tether.ts";
import { openTether } from "../drivers/server/tether.ts";
import type { Driver } from "../spi/driver.ts";
import { CommandError, commandError } from "./failure.ts";

/** An open store. */
export interface Store {
  readonly locks: Locks;
  readonly driver: Driver;
  /** How messages name it. */
  readonly name: string;
}

/** The url that was given or stands in the environment; undefined: the server of this user is meant. */
export function urlOf(url: string | undefined = process.env.HOLDFAST_URL): string | undefined {
  return url === "" ? undefined : url;
}

/** A url without user and password, as messages show it. */
function storeName(given: string | undefined): string {
  const url = urlOf(given);
  if (url === undefined) return "your lock server";
  // one that names several hosts is no url to every reader
  return /^[a-z+]+:/.test(url) ? url.replace(/\/\/[^/@]*@/, "//") : "the url";
}

/**
 * Connects.
 * @throws CommandError: unreachable, refused, or usage for a url that means nothing
 */
export async function openStore(url: string | undefined, options: LocksOptions = {}): Promise<Store> {
  const name = storeName(url);
  try {
    const driver = await driverFor(url);
    const client = new Client(driver, settingsOf(options), Math.random);
    await client.open();
    return { locks: locksOf(client), driver, name };
  } catch (error) {
    throw commandError(error, name);
  }
}

/** The server may have died just now: so long may the next one take to be there and to know our session. */
const TETHER_PATIENCE_MS = 5_000;
const TETHER_PAUSE_MS = 100;

/**
 * A connection that keeps our session as long as somebody has it open: the child inherits it. Null where the store has no
 * such thing.
 * @throws CommandError unreachable
 */
export async function tetherOf({ driver, name }: Store): Promise<Tether | null> {
  const end = performance.now() + TETHER_PATIENCE_MS;
  for (;;) {
    try {
      return await openTether(driver);
    } catch (error) {
      if (performance.now() >= end)
        throw new CommandError("unreachable", `${name}: ${(error as Error).message}; nothing was run`, {
          cause: error,
        });
      await delay(TETHER_PAUSE_MS);
    }
  }
}
