/**
 * The drivers for MariaDB and MySQL: `mysql()`, whose procedures in sql/ keep the queues, each verb one CALL; and
 * `mysqlAdvisory()`.
 */

import type { Driver } from "../../../spi/driver.ts";
import { adaptMysqlClient } from "../clients/detect.ts";
import { toClientSource } from "../clients/source.ts";
import { createSqlDriver } from "../driver.ts";
import { createMysqlDialect } from "./dialect.ts";
import type { MysqlClient, MysqlOptions } from "./options.ts";
import { validateMysqlOptions } from "./options.ts";

export type { GuardDataLossOptions } from "../../data-loss-guard.ts";
export { mysqlAdvisory } from "./advisory.ts";
export type { MysqlAdvisoryOptions, MysqlAdvisoryWarning } from "./advisory-options.ts";
export { mysqlMigration } from "./migration.ts";
export type { MysqlClient, MysqlOptions, MysqlWarning } from "./options.ts";

/**
 * Creates a driver for MariaDB (10.6 or later; tested with 10.11) and MySQL (8.0.13 or later; untested). InnoDB only.
 * `client`: a pool or a connection of mysql2 or mariadb, which the driver never closes; or a function that creates one,
 * which the driver closes. No connection is kept between calls, so a small pool serves any number of locks. A single
 * connection must not be used for transactions.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function mysql(
  client: MysqlClient | (() => MysqlClient | Promise<MysqlClient>),
  options: MysqlOptions = {},
): Driver {
  validateMysqlOptions(options);
  const { create, isOwned } = toClientSource(client, adaptMysqlClient);
  return createSqlDriver(createMysqlDialect(create, isOwned, options), options);
}
