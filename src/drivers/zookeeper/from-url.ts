/**
 * zookeeper://a:2181,b:2181/chroot?root=/locks&sessionMs=10000: an ensemble by its servers, in the format of
 * ZooKeeper's own clients; zookeepers:// is over TLS.
 */

import type { Driver } from "../../spi/driver.ts";
import { decodePercent } from "../../util/decode-percent.ts";
import { createTlsReader, parseBoolean, parseQuery, parseServers, parseTokenBase } from "../cluster-url.ts";
import { zookeeper } from "./driver.ts";
import type { Family } from "./node-names.ts";
import type { ZooKeeperDriverOptions } from "./options.ts";

const DEFAULT_PORT = 2_181;
const URL_PARAMETERS: readonly string[] = ["root", "sessionMs", "family", "fair", "tokenBase"];

/**
 * The driver of a url, not opened yet.
 * @throws TypeError for an invalid url; StoreRefusedError naming a file that cannot be read, or used
 */
export function zookeeperFromUrl(
  url: string,
  { connectTimeout }: Pick<ZooKeeperDriverOptions, "connectTimeout">,
): Driver {
  const match = /^(zookeepers?):\/\/([^/?#@]+)(\/[^?#]*)?(?:\?([^#]*))?$/.exec(url);
  if (match === null)
    throw new TypeError("url must be zookeeper://host:2181,host:2181/chroot, without user, password or fragment");
  const [, scheme, hosts, path = "", query = ""] = match as unknown as [string, string, string, string?, string?];
  const isTls = scheme === "zookeepers";
  const parameters = parseQuery(scheme, query, URL_PARAMETERS, isTls);
  return zookeeper({
    servers: parseServers(hosts, DEFAULT_PORT),
    chroot: path === "/" ? "" : decodePercent(path),
    ...(connectTimeout !== undefined && { connectTimeout }),
    ...parseParameters(parameters),
    ...(isTls && { tls: createTlsReader(parameters) }),
  });
}

function parseParameters(parameters: URLSearchParams): Partial<ZooKeeperDriverOptions> {
  const [root, sessionMs, family] = ["root", "sessionMs", "family"].map((name) => parameters.get(name));
  const fair = parseBoolean(parameters, "fair");
  const tokenBase = parseTokenBase(parameters);
  return {
    ...(root != null && { root }),
    ...(family != null && { family: family as Family }),
    ...(fair !== undefined && { fair }),
    ...(tokenBase !== undefined && { tokenBase }),
    ...(sessionMs != null && { sessionMs: Number(sessionMs) }),
  };
}
