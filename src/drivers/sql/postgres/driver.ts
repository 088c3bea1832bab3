/** The PostgreSQL driver: `postgres()`, and the SQL of its tables. */

import type { Driver } from "../../../spi/driver.ts";
import { adaptPostgresClient } from "../clients/detect.ts";
import type { SqlClient } from "../clients/types.ts";
import { createSqlDriver } from "../driver.ts";
import { PostgresDialect } from "./dialect.ts";
import type { PostgresOptions } from "./options.ts";
import { validatePostgresOptions } from "./options.ts";

export { postgresMigration } from "./migration.ts";
export type { PostgresOptions, PostgresWarning } from "./options.ts";

/** A client for PostgreSQL: a Pool or a Client of pg. */
export type PostgresClient = object;

/**
 * Creates a driver for PostgreSQL (12 or later; tested with 15). Locks are rows of tables in a schema of their own.
 * `client`: a Pool of pg, which the driver never closes; or a function that creates one, which the driver closes. A single
 * Client works, but receives no pushes. A call takes a connection for one statement only. While claims of this process
 * wait, one further connection listens for pushes.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function postgres(
  client: PostgresClient | (() => PostgresClient | Promise<PostgresClient>),
  options: PostgresOptions = {},
): Driver {
  validatePostgresOptions(options);
  const adapted = tryAdapt(client);
  if (adapted !== null)
    return createSqlDriver(new PostgresDialect(() => Promise.resolve(adapted), false, options), options);
  const makeClient = client as () => PostgresClient | Promise<PostgresClient>;
  const createClient = async (): Promise<SqlClient> => adaptPostgresClient(await makeClient());
  return createSqlDriver(new PostgresDialect(createClient, true, options), options);
}

/** null: it is a function that creates a client. A client may be a function, too. */
function tryAdapt(client: unknown): SqlClient | null {
  try {
    return adaptPostgresClient(client);
  } catch (error) {
    if (typeof client === "function") return null;
    throw error;
  }
}
