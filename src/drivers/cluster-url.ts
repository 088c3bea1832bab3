/** The parts that urls of clusters have in common: servers, parameters, and TLS. */

import type { ConnectionOptions } from "node:tls";
import type { ClientTlsOptions } from "../net/tls.ts";
import { createTlsFileReader } from "../net/tls.ts";
import { decodePercent } from "../util/decode-percent.ts";
import { describeValue } from "../util/duration.ts";

/** One server of a cluster. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** The parameters of a url with TLS. */
const TLS_PARAMETERS: readonly string[] = ["ca", "cert", "key", "servername"];

/** host:port,host:port @throws TypeError showing the server that is wrong */
export function parseServers(text: string, defaultPort: number): readonly ServerAddress[] {
  return text.split(",").map((server) => {
    const match = /^(\[[0-9a-f:]+\]|[^:[\]\s]+)(?::(\d{1,5}))?$/i.exec(server);
    const port = Number(match?.[2] ?? defaultPort);
    if (match === null || port === 0 || port > 65_535)
      throw new TypeError(`url must name servers as host:port, not ${describeValue(server)}`);
    return { host: (match[1] as string).replace(/^\[|\]$/g, ""), port };
  });
}

/** user:password @throws TypeError that shows neither */
export function parseLogin(text: string): { readonly user: string; readonly password: string } {
  const [user = "", password, ...rest] = text.split(":").map(decodePercent);
  if (user === "" || password === undefined || rest.length > 0)
    throw new TypeError("url must have a user and a password, or neither, each percent-encoded");
  return { user, password };
}

/** Reads the query of a url. @throws TypeError naming a parameter that it does not have */
export function parseQuery(scheme: string, query: string, names: readonly string[], isTls: boolean): URLSearchParams {
  const parameters = new URLSearchParams(query);
  for (const name of parameters.keys()) {
    if (!names.includes(name) && !(isTls && TLS_PARAMETERS.includes(name)))
      throw new TypeError(`url has no parameter ${describeValue(name)} for ${scheme}:`);
  }
  return parameters;
}

/** A parameter that is "true" or "false"; undefined: it is missing. @throws TypeError naming it */
export function parseBoolean(parameters: URLSearchParams, name: string): boolean | undefined {
  const value = parameters.get(name);
  if (value === null) return undefined;
  if (value !== "true" && value !== "false")
    throw new TypeError(`url: ${name} must be true or false, not ${describeValue(value)}`);
  return value === "true";
}

/** The parameter tokenBase; undefined: it is missing. @throws TypeError naming it */
export function parseTokenBase(parameters: URLSearchParams): bigint | undefined {
  const value = parameters.get("tokenBase");
  if (value === null) return undefined;
  if (!/^\d{1,18}$/.test(value)) throw new TypeError(`url: tokenBase must be a number, not ${describeValue(value)}`);
  return BigInt(value);
}

/**
 * Returns a function that reads the files of a url, to be called for each connection.
 * @throws StoreRefusedError naming a file that cannot be read, or used
 */
export function createTlsReader(parameters: URLSearchParams): () => ConnectionOptions {
  const { servername, ...paths } = Object.fromEntries(
    TLS_PARAMETERS.flatMap((name) => {
      const value = parameters.get(name);
      return value === null ? [] : [[name, value]];
    }),
  ) as ClientTlsOptions;
  const readFiles = createTlsFileReader(paths);
  return () => ({ ...readFiles(), ...(servername !== undefined && { servername }) });
}
