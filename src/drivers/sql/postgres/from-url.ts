/**
 * The driver of a url, whose pool is created by the library that is installed:
 *   postgres://[user[:password]@]host[:5432]/database, or postgresql:
 * Parameters: schema, recall ("true" or "false"), and prefix, createTables, guardDataLoss, silenceWarnings (see
 * takeUrlOptions); all others are the library's.
 */

import type { Driver } from "../../../spi/driver.ts";
import { toConnectTimeoutMs } from "../../connect-timeout.ts";
import { loadPostgresClient } from "../clients/load.ts";
import { parsePostgresUrl } from "../clients/url.ts";
import { createSqlDriver } from "../driver.ts";
import { parseUrlBoolean, takeUrlOptions, takeUrlParameters, URL_OPTIONS } from "../url-parameters.ts";
import { createPostgresDialect } from "./dialect.ts";
import type { PostgresOptions } from "./options.ts";
import { validatePostgresOptions } from "./options.ts";

/** Those that only this database has. */
const OWN_PARAMETERS = ["schema", "recall"] as const;

/**
 * Creates the driver of a url.
 * @throws TypeError as connect()
 */
export function postgresFromUrl(url: string, options: PostgresOptions): Driver {
  const { url: withoutOwn, values } = takeUrlParameters(url, OWN_PARAMETERS);
  const { recall, ...location } = values;
  const own = takeUrlOptions(withoutOwn);
  parsePostgresUrl(own.url, [...OWN_PARAMETERS, ...URL_OPTIONS]);
  const allOptions = {
    ...options,
    ...own.options,
    ...location,
    ...(recall !== undefined && { recall: parseUrlBoolean("recall", recall) }),
  } as PostgresOptions;
  validatePostgresOptions(allOptions);
  const connectTimeoutMs = toConnectTimeoutMs(allOptions.connectTimeout);
  const createClient = () => loadPostgresClient(own.url, { connectTimeoutMs });
  return createSqlDriver(createPostgresDialect(createClient, true, allOptions), allOptions);
}
