/**
 * zookeeper://a:2181,b:2181/chroot?root=/locks&sessionMs=10000: an ensemble by its servers, in the format of
 * ZooKeeper's own clients; zookeepers:// is over TLS.
 */

import type { ConnectionOptions } from "node:tls";
import type { ClientTlsOptions } from "../../net/tls.ts";
import { createTlsFileReader } from "../../net/tls.ts";
import type { Driver } from "../../spi/driver.ts";
import { describeValue } from "../../util/duration.ts";
import type { ServerAddress } from "./client/server-list.ts";
import { zookeeper } from "./driver.ts";
import type { Family } from "./node-names.ts";
import type { ZooKeeperDriverOptions } from "./options.ts";

const DEFAULT_PORT = 2_181;
const URL_PARAMETERS: readonly string[] = ["root", "sessionMs", "family", "fair", "tokenBase"];
const TLS_PARAMETERS: readonly string[] = ["ca", "cert", "key", "servername"];

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
  const parameters = new URLSearchParams(query);
  const isTls = scheme === "zookeepers";
  const knownParameters = isTls ? [...URL_PARAMETERS, ...TLS_PARAMETERS] : URL_PARAMETERS;
  for (const name of parameters.keys()) {
    if (!knownParameters.includes(name))
      throw new TypeError(`url has no parameter ${describeValue(name)} for ${scheme}:`);
  }
  return zookeeper({
    servers: hosts.split(",").map(parseServer),
    chroot: path === "/" ? "" : decodeURIComponent(path),
    ...(connectTimeout !== undefined && { connectTimeout }),
    ...parseParameters(parameters),
    ...(isTls && { tls: createTlsReader(parameters) }),
  });
}

function parseParameters(parameters: URLSearchParams): Partial<ZooKeeperDriverOptions> {
  const [root, sessionMs] = [parameters.get("root"), parameters.get("sessionMs")];
  const [family, fair, tokenBase] = [parameters.get("family"), parameters.get("fair"), parameters.get("tokenBase")];
  if (fair !== null && fair !== "true" && fair !== "false")
    throw new TypeError(`url: fair must be true or false, not ${describeValue(fair)}`);
  if (tokenBase !== null && !/^\d{1,18}$/.test(tokenBase))
    throw new TypeError(`url: tokenBase must be a number, not ${describeValue(tokenBase)}`);
  return {
    ...(root !== null && { root }),
    ...(family !== null && { family: family as Family }),
    ...(fair !== null && { fair: fair === "true" }),
    ...(tokenBase !== null && { tokenBase: BigInt(tokenBase) }),
    ...(sessionMs !== null && { sessionMs: Number(sessionMs) }),
  };
}

function createTlsReader(parameters: URLSearchParams): () => ConnectionOptions {
  const { servername, ...paths } = Object.fromEntries(
    TLS_PARAMETERS.flatMap((name) => {
      const value = parameters.get(name);
      return value === null ? [] : [[name, value]];
    }),
  ) as ClientTlsOptions;
  const readFiles = createTlsFileReader(paths);
  return () => ({ ...readFiles(), ...(servername !== undefined && { servername }) });
}

function parseServer(text: string): ServerAddress {
  const match = /^(\[[0-9a-f:]+\]|[^:[\]\s]+)(?::(\d{1,5}))?$/i.exec(text);
  const port = Number(match?.[2] ?? DEFAULT_PORT);
  if (match === null || port === 0 || port > 65_535)
    throw new TypeError(`url must name servers as host:port, not ${describeValue(text)}`);
  return { host: (match[1] as string).replace(/^\[|\]$/g, ""), port };
}
