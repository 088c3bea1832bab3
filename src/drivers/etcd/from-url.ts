/**
 * etcd://[user:password@]host:2379[,host...]?prefix=locks/: a cluster by its members; etcds:// is over TLS. Parameters: prefix, compatible,
 * tokenBase; with TLS also ca, cert, key and servername.
 */

import type { Driver } from "../../spi/driver.ts";
import { createTlsReader, parseBoolean, parseLogin, parseQuery, parseServers, parseTokenBase } from "../cluster-url.ts";
import { etcd } from "./driver.ts";
import type { EtcdOptions } from "./options.ts";

const DEFAULT_PORT = 2_379;

/**
 * The driver of a url, not opened yet.
 * @throws TypeError for an invalid url, which it does not show; StoreRefusedError naming a file that cannot be read, or used
 */
export function etcdFromUrl(url: string, { connectTimeout }: Pick<EtcdOptions, "connectTimeout">): Driver {
  const match = /^(etcds?):\/\/(?:([^/?#@]*)@)?([^/?#@]+)\/?(?:\?([^#]*))?$/.exec(url);
  if (match === null) throw new TypeError("url must be etcd://host:2379,host:2379, without path or fragment");
  const [, scheme = "", login, hosts = "", query = ""] = match;
  const isTls = scheme === "etcds";
  const parameters = parseQuery(scheme, query, ["prefix", "compatible", "tokenBase"], isTls);
  const prefix = parameters.get("prefix");
  const compatible = parseBoolean(parameters, "compatible");
  const tokenBase = parseTokenBase(parameters);
  return etcd({
    servers: parseServers(hosts, DEFAULT_PORT),
    ...(login !== undefined && parseLogin(login)),
    ...(connectTimeout !== undefined && { connectTimeout }),
    ...(prefix !== null && { prefix }),
    ...(compatible !== undefined && { compatible }),
    ...(tokenBase !== undefined && { tokenBase }),
    ...(isTls && { tls: createTlsReader(parameters) }),
  });
}
