/** The store a command works on, opened, with the words by which messages name it. */

import { Client } from "../client/client.ts";
import { driverFor } from "../client/connect.ts";
import type { Locks } from "../client/locks.ts";
import { locksOf } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { settingsOf } from "../client/options.ts";
import type { Driver } from "../spi/driver.ts";
import { commandError } from "./failure.ts";

/** An open store. */
export interface Store {
  readonly locks: Locks;
  readonly driver: Driver;
  /** How messages name it. */
  readonly name: string;
}

/** Which store: --url, else HOLDFAST_URL, else undefined for the user's own server. */
export function chosenUrl(url: string | undefined): string | undefined {
  const chosen = url ?? process.env["HOLDFAST_URL"];
  return chosen === "" ? undefined : chosen;
}

/** A url without user and password, as messages show it. */
export function storeName(url: string | undefined): string {
  if (url === undefined) return "your lock server";
  return URL.canParse(url) ? url.replace(/\/\/[^/@]*@/, "//") : "the url";
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
