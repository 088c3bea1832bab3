/** The drivers for PostgreSQL: `postgres()` with the SQL of its tables, and `postgresAdvisory()`. */

import type { Driver } from "../../../spi/driver.ts";
import { adaptPostgresClient } from "../clients/detect.ts";
import { toClientSource } from "../clients/source.ts";
import { createSqlDriver } from "../driver.ts";
import { createPostgresDialect } from "./dialect.ts";
import type { PostgresClient, PostgresOptions } from "./options.ts";
import { validatePostgresOptions } from "./options.ts";

export type { GuardDataLossOptions } from "../../data-loss-guard.ts";
export { postgresAdvisory } from "./advisory.ts";
export type { PostgresAdvisoryOptions, PostgresAdvisoryWarning } from "./advisory-options.ts";
export { postgresMigration } from "./migration.ts";
export type { PostgresClient, PostgresOptions, PostgresWarning } from "./options.ts";

/**
 * Creates a driver for PostgreSQL (12 or later; tested with 15). Locks are rows of tables in a schema of their own.
 * `client`: a Pool of pg, which the driver never closes; or a function that creates one, which the driver closes. A
 * single Client works, but receives no pushes. A call takes a connection for one statement only. While claims of this
 * process wait, one further connection listens for pushes.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function postgres(
  client: PostgresClient | (() => PostgresClient | Promise<PostgresClient>),
  options: PostgresOptions = {},
): Driver {
  validatePostgresOptions(options);
  const { create, isOwned } = toClientSource(client, adaptPostgresClient);
  return createSqlDriver(createPostgresDialect(create, isOwned, options), options);
}
