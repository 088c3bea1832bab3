/**
 * The driver of a url, whose connections are opened by the library that is installed:
 *   postgres+advisory://[user[:password]@]host[:5432]/database, or postgresql+advisory:
 * Parameters: sessionMs, maxWaitConnections, silenceWarnings (see takeAdvisoryUrlOptions); all others are the
 * library's.
 */

import type { Driver } from "../../../spi/driver.ts";
import { toConnectTimeoutMs } from "../../connect-timeout.ts";
import { createAdvisoryDriver } from "../advisory/driver.ts";
import { ADVISORY_URL_OPTIONS, takeAdvisoryUrlOptions } from "../advisory/url-options.ts";
import { loadPostgresClient } from "../clients/load.ts";
import { parsePostgresUrl } from "../clients/url.ts";
import { createPostgresAdvisoryDialect } from "./advisory-dialect.ts";
import type { PostgresAdvisoryOptions } from "./advisory-options.ts";
import { validatePostgresAdvisoryOptions } from "./advisory-options.ts";

/**
 * Creates the driver of a url.
 * @throws TypeError as connect()
 */
export function postgresAdvisoryFromUrl(url: string, options: PostgresAdvisoryOptions): Driver {
  const own = takeAdvisoryUrlOptions(url);
  parsePostgresUrl(own.url, ADVISORY_URL_OPTIONS);
  const allOptions = { ...options, ...own.options } as PostgresAdvisoryOptions;
  validatePostgresAdvisoryOptions(allOptions);
  const connectTimeoutMs = toConnectTimeoutMs(allOptions.connectTimeout);
  const create = () => loadPostgresClient(own.url, { connectTimeoutMs });
  return createAdvisoryDriver(createPostgresAdvisoryDialect(), { create, isOwned: true, existing: null }, allOptions);
}
