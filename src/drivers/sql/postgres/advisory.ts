/** The driver for advisory locks of PostgreSQL: `postgresAdvisory()`. */

import type { Driver } from "../../../spi/driver.ts";
import { createAdvisoryDriver } from "../advisory/driver.ts";
import { adaptPostgresClient } from "../clients/detect.ts";
import { toClientSource } from "../clients/source.ts";
import { createPostgresAdvisoryDialect } from "./advisory-dialect.ts";
import type { PostgresAdvisoryOptions } from "./advisory-options.ts";
import { validatePostgresAdvisoryOptions } from "./advisory-options.ts";
import type { PostgresClient } from "./options.ts";

/**
 * Creates a driver for advisory locks of PostgreSQL (12 or later; tested with 15): no table, no fencing token; a lock
 * lasts as long as its connection. `client`: a Pool of pg or the sql of postgres.js, which the driver never closes; or
 * a function that creates one, which the driver closes. The driver opens connections of its own with the settings of
 * the client: one, and one more for each lock that has to be waited for.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function postgresAdvisory(
  client: PostgresClient | (() => PostgresClient | Promise<PostgresClient>),
  options: PostgresAdvisoryOptions = {},
): Driver {
  validatePostgresAdvisoryOptions(options);
  const source = toClientSource(client, adaptPostgresClient);
  return createAdvisoryDriver(createPostgresAdvisoryDialect(options.keyToLock), source, options);
}
