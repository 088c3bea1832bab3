/**
 * etcd://[user:password@]host:2379[,host...]?prefix=locks/: a cluster by its members; etcds:// is over TLS. Parameters: prefix, compatible,
 * tokenBase; with TLS also ca, cert, key and servername.
 */

import type { ConnectionOptions } from "node:tls";
import { createTlsFileReader } from "../../net/tls.ts";
import type { Driver } from "../../spi/driver.ts";
import { describeValue } from "../../util/duration.ts";
import { etcd } from "./driver.ts";
import type { EtcdServer } from "./gateway.ts";
import type { EtcdOptions } from "./options.ts";

const DEFAULT_PORT = 2_379;
const URL_PARAMETERS: readonly string[] = ["prefix", "compatible", "tokenBase"];
const TLS_PARAMETERS: readonly string[] = ["ca", "cert", "key", "servername"];

/**
 * The driver of a url, not opened yet.
 * @throws TypeError for an invalid url, which it does not show; StoreRefusedError naming a file that cannot be read, or used
 */
export function etcdFromUrl(url: string, { connectTimeout }: Pick<EtcdOptions, "connectTimeout">): Driver {
  const match = /^(etcds?):\/\/(?:([^/?#@]*)@)?([^/?#@]+)\/?(?:\?([^#]*))?$/.exec(url);
  if (match === null) throw new TypeError("url must be etcd://host:2379,host:2379, without path or fragment");
  const [, scheme = "", userinfo, hosts = "", query = ""] = match;
  const parameters = new URLSearchParams(query);
  const isTls = scheme === "etcds";
  const knownParameters = isTls ? [...URL_PARAMETERS, ...TLS_PARAMETERS] : URL_PARAMETERS;
  for (const name of parameters.keys()) {
    if (!knownParameters.includes(name))
      throw new TypeError(`url has no parameter ${describeValue(name)} for ${scheme}:`);
  }
  return etcd({
    servers: hosts.split(",").map(parseServer),
    ...(userinfo !== undefined && parseUser(userinfo)),
    ...(connectTimeout !== undefined && { connectTimeout }),
    ...parseParameters(parameters),
    ...(isTls && { tls: createTlsReader(parameters) }),
  });
}

function parseUser(userinfo: string): Pick<EtcdOptions, "user" | "password"> {
  const [user = "", password, ...rest] = userinfo.split(":");
  if (user === "" || password === undefined || rest.length > 0)
    throw new TypeError("url must have a user and a password, or neither, each percent-encoded");
  try {
    return { user: decodeURIComponent(user), password: decodeURIComponent(password) };
  } catch {
    throw new TypeError("url must have a valid percent-encoding");
  }
}

function parseParameters(parameters: URLSearchParams): Partial<EtcdOptions> {
  const [prefix, compatible] = [parameters.get("prefix"), parameters.get("compatible")];
  const tokenBase = parameters.get("tokenBase");
  if (compatible !== null && compatible !== "true" && compatible !== "false")
    throw new TypeError(`url: compatible must be true or false, not ${describeValue(compatible)}`);
  if (tokenBase !== null && !/^\d{1,18}$/.test(tokenBase))
    throw new TypeError(`url: tokenBase must be a number, not ${describeValue(tokenBase)}`);
  return {
    ...(prefix !== null && { prefix }),
    ...(compatible !== null && { compatible: compatible === "true" }),
    ...(tokenBase !== null && { tokenBase: BigInt(tokenBase) }),
  };
}

function createTlsReader(parameters: URLSearchParams): () => ConnectionOptions {
  const { servername, ...paths } = Object.fromEntries(
    TLS_PARAMETERS.flatMap((name) => {
      const value = parameters.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
  const readFiles = createTlsFileReader(paths);
  return () => ({ ...readFiles(), ...(servername !== undefined && { servername }) });
}

function parseServer(text: string): EtcdServer {
  const match = /^(\[[0-9a-f:]+\]|[^:[\]\s]+)(?::(\d{1,5}))?$/i.exec(text);
  const port = Number(match?.[2] ?? DEFAULT_PORT);
  if (match === null || port === 0 || port > 65_535)
    throw new TypeError(`url must name servers as host:port, not ${describeValue(text)}`);
  return { host: (match[1] as string).replace(/^\[|\]$/g, ""), port };
}
