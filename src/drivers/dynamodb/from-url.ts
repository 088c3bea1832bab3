/** dynamodb:table?region=eu-west-1&endpoint=http://localhost:8000: credentials are taken from the environment. */

import type { Driver } from "../../spi/driver.ts";
import type { ConnectOptions } from "../document-store-url.ts";
import { parseStoreParameters } from "../document-store-url.ts";
import { dynamodb } from "./driver.ts";

/**
 * The driver of a url, not opened yet.
 * @throws TypeError for an invalid url
 */
export function dynamodbFromUrl(url: string, options: ConnectOptions): Driver {
  const [, table, query = ""] = /^dynamodb:([-\w.]+)(?:\?([^#]*))?$/.exec(url) ?? [];
  if (table === undefined)
    throw new TypeError("url must have the form dynamodb:table?region=eu-west-1, without user or password");
  return dynamodb({
    table,
    ...parseStoreParameters("dynamodb", query, ["region", "endpoint"], options),
  });
}
