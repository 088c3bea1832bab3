/**
 * The driver of a url, whose pool is created by the library that is installed:
 *   mysql://[user[:password]@]host[:3306]/database, or mariadb:
 * Parameters: prefix, createTables, guardDataLoss, silenceWarnings (see takeUrlOptions); all others are the library's.
 */

import type { Driver } from "../../../spi/driver.ts";
import { toConnectTimeoutMs } from "../../connect-timeout.ts";
import { loadMysqlClient } from "../clients/load.ts";
import { parseMysqlUrl } from "../clients/url.ts";
import { createSqlDriver } from "../driver.ts";
import { takeUrlOptions, URL_OPTIONS } from "../url-parameters.ts";
import { createMysqlDialect } from "./dialect.ts";
import type { MysqlOptions } from "./options.ts";
import { validateMysqlOptions } from "./options.ts";

/**
 * Creates the driver of a url.
 * @throws TypeError as connect()
 */
export function mysqlFromUrl(url: string, options: MysqlOptions): Driver {
  const own = takeUrlOptions(url);
  parseMysqlUrl(own.url, URL_OPTIONS);
  const allOptions = { ...options, ...own.options } as MysqlOptions;
  validateMysqlOptions(allOptions);
  const connectTimeoutMs = toConnectTimeoutMs(allOptions.connectTimeout);
  const createClient = () => loadMysqlClient(own.url, { connectTimeoutMs });
  return createSqlDriver(createMysqlDialect(createClient, true, allOptions), allOptions);
}
