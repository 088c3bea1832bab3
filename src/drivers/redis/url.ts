/**
 * Parses Redis URLs:
 *   redis://[user[:password]@]host[:6379][/database]
 *   redis+sentinel://[user[:password]@]host[:26379][,host...]/master[/database]
 *   redis+cluster://[user[:password]@]host[:6379][,host...]
 * The schemes rediss, rediss+sentinel and rediss+cluster use TLS.
 * Parameters: prefix; guardDataLoss ("true", or the longest ttl such as "30s"); replicas (how many must acknowledge);
 * silenceWarnings (names separated by commas); with TLS also ca (a file) and servername.
 */

import { parseDuration } from "../../util/duration.ts";
import type { WarningName } from "./diagnostics.ts";

export interface RedisEndpoint {
  readonly topology: "single" | "sentinel" | "cluster";
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  /** The name of the master in the Sentinels. */
  readonly master?: string;
  readonly database: number;
  readonly username?: string;
  readonly password?: string;
  readonly prefix?: string;
  readonly guardDataLoss?: true | { readonly maxTtlMs: number };
  readonly replicas?: { readonly minAcks: number };
  /** The driver checks them. */
  readonly silenceWarnings?: readonly WarningName[];
  /** Undefined: no TLS. */
  readonly tls?: { readonly ca?: string; readonly servername?: string };
}

const URL_FORMS = {
  single: "//user:password@host:6379/0",
  sentinel: "//user:password@host:26379,host:26379/master",
  cluster: "//user:password@host:6379,host:6379",
};

const URL_PARAMETERS: readonly string[] = ["prefix", "guardDataLoss", "replicas", "silenceWarnings"];
const TLS_PARAMETERS: readonly string[] = ["ca", "servername"];

const URL_PARTS = /^(rediss?)(?:\+(sentinel|cluster))?:\/\/(?:([^@/?#]*)@)?([^@/?#]+)(\/[^?#]*)?(?:\?([^#]*))?$/;
const HOST = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/;

/** @throws TypeError naming the form. It does not contain the URL, which may hold a password. */
export function parseRedisUrl(url: string): RedisEndpoint {
  const parts = URL_PARTS.exec(url);
  const [, scheme = "redis", kind = "single", login, names = "", path = "", query] = parts ?? [];
  const topology = kind as RedisEndpoint["topology"];
  const createFormError = (): TypeError => {
    const protocol = /^[a-z+]+:/.exec(url)?.[0] ?? "redis:";
    return new TypeError(`url must have the form ${protocol}${URL_FORMS[topology]}`);
  };
  if (parts === null) throw createFormError();
  const port = topology === "sentinel" ? 26_379 : 6_379;
  const hosts = names.split(",").map((name) => {
    const host = HOST.exec(name);
    if (host === null || Number(host[3] ?? port) > 65_535) throw createFormError();
    return { host: (host[1] ?? host[2]) as string, port: Number(host[3] ?? port) };
  });
  const [, master, database] =
    (topology === "sentinel" ? /^\/([^/]+)(?:\/(\d{1,4}))?$/ : /^()(?:\/(\d{1,4})?)?$/).exec(path) ?? [];
  if (master === undefined || (topology === "single" && hosts.length > 1)) throw createFormError();
  if (topology === "cluster" && database !== undefined) throw createFormError();
  const [user, password] = parseLogin(login);
  const { prefix, guardDataLoss, replicas, silenceWarnings, ...tls } = parseParameters(
    query,
    scheme === "rediss",
    `${scheme}${topology === "single" ? "" : `+${topology}`}:`,
  );
  return {
    topology,
    hosts,
    database: Number(database ?? 0),
    ...(topology === "sentinel" && { master: decodePercent(master) }),
    ...(user !== "" && { username: user }),
    ...(password !== "" && { password }),
    ...(prefix !== undefined && { prefix }),
    ...(guardDataLoss !== undefined && { guardDataLoss: parseGuardDataLoss(guardDataLoss) }),
    ...(replicas !== undefined && { replicas: { minAcks: Number(replicas) } }),
    ...(silenceWarnings !== undefined && { silenceWarnings: silenceWarnings.split(",") as WarningName[] }),
    ...(scheme === "rediss" && { tls }),
  };
}

function parseLogin(login = ""): readonly [user: string, password: string] {
  const colon = login.indexOf(":");
  return colon === -1
    ? [decodePercent(login), ""]
    : [decodePercent(login.slice(0, colon)), decodePercent(login.slice(colon + 1))];
}

function parseParameters(query: string | undefined, isTls: boolean, protocol: string): Record<string, string> {
  const parameters = Object.fromEntries(new URLSearchParams(query));
  for (const name of Object.keys(parameters)) {
    if (URL_PARAMETERS.includes(name) || (isTls && TLS_PARAMETERS.includes(name))) continue;
    throw new TypeError(`url has no parameter ${JSON.stringify(name)} for ${protocol}`);
  }
  return parameters;
}

function parseGuardDataLoss(text: string): true | { readonly maxTtlMs: number } {
  return text === "true" ? true : { maxTtlMs: parseDuration(text, "guardDataLoss") };
}

function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (cause) {
    throw new TypeError("url must be percent-encoded properly", { cause });
  }
}
