/** The driver for named locks of MariaDB and MySQL: `mysqlAdvisory()`. */

import type { Driver } from "../../../spi/driver.ts";
import { createAdvisoryDriver } from "../advisory/driver.ts";
import { adaptMysqlClient } from "../clients/detect.ts";
import { toClientSource } from "../clients/source.ts";
import { createMysqlAdvisoryDialect } from "./advisory-dialect.ts";
import type { MysqlAdvisoryOptions } from "./advisory-options.ts";
import { validateMysqlAdvisoryOptions } from "./advisory-options.ts";
import type { MysqlClient } from "./options.ts";

/**
 * Creates a driver for GET_LOCK of MariaDB (10.6 or later; tested with 10.11) and MySQL (8.0.13 or later; untested): no
 * table, no fencing token, exclusive locks only; a lock lasts as long as its connection. `client`: a pool of mysql2,
 * which the driver never closes; or a function that creates one, which the driver closes. The driver opens connections
 * of its own with the settings of the client: one, and one more for each lock that has to be waited for. The package
 * mariadb works by url only, since its pools do not show their settings.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function mysqlAdvisory(
  client: MysqlClient | (() => MysqlClient | Promise<MysqlClient>),
  options: MysqlAdvisoryOptions = {},
): Driver {
  validateMysqlAdvisoryOptions(options);
  const source = toClientSource(client, adaptMysqlClient);
  return createAdvisoryDriver(createMysqlAdvisoryDialect(options.keyToName), source, options);
}
