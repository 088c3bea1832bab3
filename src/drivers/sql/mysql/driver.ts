/** The driver for MariaDB and MySQL. The procedures in sql/ keep the queues; each verb is one CALL. */

import type { Driver } from "../../../spi/driver.ts";
import { adaptMysqlClient } from "../clients/detect.ts";
import type { SqlClient } from "../clients/types.ts";
import { createSqlDriver } from "../driver.ts";
import { createMysqlDialect } from "./dialect.ts";
import type { MysqlOptions } from "./options.ts";
import { validateMysqlOptions } from "./options.ts";

export { mysqlMigration } from "./migration.ts";
export type { MysqlOptions, MysqlWarning } from "./options.ts";

/** A client for MariaDB or MySQL: a pool or a connection of mysql2 or mariadb. */
export type MysqlClient = object;

/**
 * Creates a driver for MariaDB (10.6 or later; tested with 10.11) and MySQL (8.0.13 or later; untested). InnoDB only.
 * `client`: a pool or a connection of mysql2 or mariadb, which the driver never closes; or a function that creates one, which
 * the driver closes. No connection is kept between calls, so a small pool serves any number of locks. A single connection
 * must not be used for transactions.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function mysql(
  client: MysqlClient | (() => MysqlClient | Promise<MysqlClient>),
  options: MysqlOptions = {},
): Driver {
  validateMysqlOptions(options);
  const isFactory = typeof client === "function";
  const adapted = isFactory ? null : adaptMysqlClient(client);
  const createClient = async (): Promise<SqlClient> =>
    adapted ?? adaptMysqlClient(await (client as () => MysqlClient | Promise<MysqlClient>)());
  return createSqlDriver(createMysqlDialect(createClient, adapted === null, options), options);
}
