/**
 * The driver of a url, whose connections are opened by the library that is installed:
 *   mysql+advisory://[user[:password]@]host[:3306]/database, or mariadb+advisory:
 * Parameters: sessionMs, maxWaitConnections, silenceWarnings (see takeAdvisoryUrlOptions); all others are the
 * library's.
 */

import type { Driver } from "../../../spi/driver.ts";
import { toConnectTimeoutMs } from "../../connect-timeout.ts";
import { createAdvisoryDriver } from "../advisory/driver.ts";
import { ADVISORY_URL_OPTIONS, takeAdvisoryUrlOptions } from "../advisory/url-options.ts";
import { loadMysqlClient } from "../clients/load.ts";
import { parseMysqlUrl } from "../clients/url.ts";
import { createMysqlAdvisoryDialect } from "./advisory-dialect.ts";
import type { MysqlAdvisoryOptions } from "./advisory-options.ts";
import { validateMysqlAdvisoryOptions } from "./advisory-options.ts";

/**
 * Creates the driver of a url.
 * @throws TypeError as connect()
 */
export function mysqlAdvisoryFromUrl(url: string, options: MysqlAdvisoryOptions): Driver {
  const own = takeAdvisoryUrlOptions(url);
  parseMysqlUrl(own.url, ADVISORY_URL_OPTIONS);
  const allOptions = { ...options, ...own.options } as MysqlAdvisoryOptions;
  validateMysqlAdvisoryOptions(allOptions);
  const connectTimeoutMs = toConnectTimeoutMs(allOptions.connectTimeout);
  const create = () => loadMysqlClient(own.url, { connectTimeoutMs });
  return createAdvisoryDriver(createMysqlAdvisoryDialect(), { create, isOwned: true, existing: null }, allOptions);
}
