/** Opens the store of a command, with the name under which messages show it. */

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
  /** Its name in messages. */
  readonly name: string;
}

/** The url from --url, else from the environment; undefined: the user's own server. */
export function resolveUrl(url: string | undefined = process.env.HOLDFAST_URL): string | undefined {
  return url === "" ? undefined : url;
}

/** The url without user and password, for messages. */
function redactStoreName(givenUrl: string | undefined): string {
  const url = resolveUrl(givenUrl);
  if (url === undefined) return "your lock server";
  // not `new URL()`: it rejects a url with several hosts
  return /^[a-z+]+:/.test(url) ? url.replace(/\/\/[^/@]*@/, "//") : "the url";
}

/**
 * Connects.
 * @throws CommandError unreachable, refused, or usage for an invalid url
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

/** If the server has just died, the next one may take this long to start and to restore our session. */
const KEEP_SESSION_TIMEOUT_MS = 5_000;
const KEEP_SESSION_RETRY_MS = 100;

/**
 * Opens a keep-session connection: the session lasts as long as any process has it open, and the child inherits it. Null if
 * the store has no such connections.
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
