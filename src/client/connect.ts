/** connect(url): locks on the store that a url names. */

import type { Duration } from "../util/duration.ts";
import { Client } from "./client.ts";
import type { Locks } from "./locks.ts";
import { bindLocks } from "./locks.ts";
import type { LocksOptions } from "./options.ts";
import { parseClientOptions, requireObject } from "./options.ts";

/** What may be said of a client made by connect(). */
export interface ConnectOptions extends LocksOptions {
  /** How long the store may take to be reached for the first time; then connect() rejects. Default 5 s. */
  readonly connectTimeout?: Duration | undefined;
  /**
   * What our server knows this client by, or a function that gives it (asked for each connection, so that it may
   * change). Default: HOLDFAST_CREDENTIAL, or what stands in the file HOLDFAST_CREDENTIAL_FILE; else none.
   */
  readonly credential?: string | (() => string) | undefined;
}

/**
 * Locks on the store of a url: `holdfast://host:7420`, `holdfasts://host:7420` (TLS), `holdfast+unix:/path`, `redis://host`,
 * `zookeeper://host`, `memory:` and their kin (docs/reference/api.md lists all). Default: HOLDFAST_URL, else the
 * per-user lock server of this machine, which is started if need be. Settles when the store has been reached.
 * @throws TypeError for a url or option that means nothing; DriverError if the store was not reached in time;
 * FatalDriverError if it refused
 */
export async function connect(url?: string, options: ConnectOptions = {}): Promise<Locks> {
  requireObject(options, "connect");
  const { connectTimeout, credential, ...rest } = options;
  const settings = parseClientOptions(rest, "connect");
  const { createDriver } = await import("./driver-url.ts");
  // the label is told once, so that no claim has to bring it
  const driver = await createDriver(url, { connectTimeout, credential, label: settings.label });
  const client = new Client(driver, settings, Math.random);
  await client.open();
  return bindLocks(client);
}
