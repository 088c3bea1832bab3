/** connect(url): locks on the store at a url. */

import { UnsupportedError } from "../errors.ts";
import { requireObject } from "../util/validate.ts";
import { cacheProblem } from "./cached-locks.ts";
import { Client } from "./client.ts";
import type { Locks } from "./locks.ts";
import { bindLocks } from "./locks.ts";
import { logWarning } from "./logger.ts";
import type { ConnectOptions } from "./options.ts";
import { parseClientOptions } from "./options.ts";

/**
 * Returns the locks of the store at a url: `holdfast://host:7420`, `holdfasts://host:7420` (TLS),
 * `holdfast+unix:/path`, `redis://host`, `zookeeper://host`, `memory:` and others (docs/reference/api/holdfast.md lists
 * all). Default: HOLDFAST_URL, else the per-user lock server of this machine, which connect() starts if necessary.
 * Resolves when the store has been reached.
 * @throws TypeError for an invalid url or option; StoreError if the store was not reached in time; StoreRefusedError if
 * it refused the connection; UnsupportedError if the store cannot do what `cache` needs
 */
export async function connect(url?: string, options: ConnectOptions = {}): Promise<Locks> {
  requireObject(options, "connect");
  const { connectTimeout, credential, ...rest } = options;
  const settings = parseClientOptions(rest, "connect");
  const { createDriver } = await import("./driver-url.ts");
  // the driver sends the label once, so that not every claim must carry it
  const { label, logger } = settings;
  const warn = logger && ((warning: string): void => logWarning(logger, warning));
  const driver = await createDriver(url, { connectTimeout, credential, label, warn });
  const client = new Client(driver, settings, Math.random);
  const { traits } = await client.open();
  const problem = settings.cacheMs > 0 ? cacheProblem(traits, driver) : null;
  if (problem !== null) {
    await client.close();
    throw new UnsupportedError(problem);
  }
  return bindLocks(client);
}
