/** The store a command works on, opened, with the words by which messages name it. */

import { setTimeout as delay } from "node:timers/promises";
import { Client } from "../client/client.ts";
import { createDriver } from "../client/driver-url.ts";
import type { Locks } from "../client/locks.ts";
import { bindLocks } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { parseClientOptions } from "../client/options.ts";
import type { KeepSessionSocket } from "../drivers/server/keep-session.ts";
import { openKeepSessionSocket } from "../drivers/server/keep-session.ts";
import type { Driver } from "../spi/driver.ts";
import { CommandError, toCommandError } from "./errors.ts";

/** An open store. */
export interface Store {
  readonly locks: Locks;
  readonly driver: Driver;
  /** How messages name it. */
  readonly name: string;
}

/** The url that was given or stands in the environment; undefined: the server of this user is meant. */
export function resolveUrl(url: string | undefined = process.env.HOLDFAST_URL): string | undefined {
  return url === "" ? undefined : url;
}

/** A url without user and password, as messages show it. */
function redactStoreName(givenUrl: string | undefined): string {
  const url = resolveUrl(givenUrl);
  if (url === undefined) return "your lock server";
  // one that names several hosts is no url to every reader
  return /^[a-z+]+:/.test(url) ? url.replace(/\/\/[^/@]*@/, "//") : "the url";
}

/**
 * Connects.
 * @throws CommandError: unreachable, refused, or usage for a url that means nothing
 */
export async function openStore(url: string | undefined, options: LocksOptions = {}): Promise<Store> {
  const name = redactStoreName(url);
  try {
    const driver = await createDriver(url);
    const client = new Client(driver, parseClientOptions(options), Math.random);
    await client.open();
    return { locks: bindLocks(client), driver, name };
  } catch (error) {
    throw toCommandError(error, name);
  }
}

/** The server may have died just now: so long may the next one take to be there and to know our session. */
const KEEP_SESSION_TIMEOUT_MS = 5_000;
const KEEP_SESSION_RETRY_MS = 100;

/**
 * A connection that keeps our session as long as somebody has it open: the child inherits it. Null where the store has no
 * such thing.
 * @throws CommandError unreachable
 */
export async function openKeepSessionWithRetry({ driver, name }: Store): Promise<KeepSessionSocket | null> {
  const deadline = performance.now() + KEEP_SESSION_TIMEOUT_MS;
  for (;;) {
    try {
      return await openKeepSessionSocket(driver);
    } catch (error) {
      if (performance.now() >= deadline)
        throw new CommandError("unreachable", `${name}: ${(error as Error).message}; nothing was run`, {
          cause: error,
        });
      await delay(KEEP_SESSION_RETRY_MS);
    }
  }
}
