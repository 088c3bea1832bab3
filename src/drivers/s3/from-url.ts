/** s3://bucket/prefix?region=eu-west-1&endpoint=http://localhost:9000: credentials are taken from the environment. */

import type { Driver } from "../../spi/driver.ts";
import type { ConnectOptions } from "../document-store-url.ts";
import { parseStoreParameters } from "../document-store-url.ts";
import { s3 } from "./driver.ts";

/**
 * The driver of a url, not opened yet.
 * @throws TypeError for an invalid url
 */
export function s3FromUrl(url: string, options: ConnectOptions): Driver {
  const [, bucket, path, query = ""] = /^s3:\/\/([-\w.]+)(?:\/([^?#]*))?(?:\?([^#]*))?$/.exec(url) ?? [];
  if (bucket === undefined)
    throw new TypeError("url must have the form s3://bucket/prefix?region=eu-west-1, without user or password");
  const prefix = path?.replace(/\/*$/, "/") ?? "/";
  return s3({
    bucket,
    // of s3://bucket/: the default
    ...(prefix !== "/" && { prefix }),
    ...parseStoreParameters("s3", query, ["region", "endpoint"], options),
  });
}
