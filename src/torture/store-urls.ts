/** Urls of stores, as the workers get them. */

import type { Address } from "./tcp-proxy.ts";

const DEFAULT_PORTS: Readonly<Record<string, number>> = {
  "holdfast:": 7420,
  "redis:": 6379,
  "postgres:": 5432,
  "postgresql:": 5432,
  "postgres+advisory:": 5432,
  "postgresql+advisory:": 5432,
  "mysql:": 3306,
  "mariadb:": 3306,
  "mysql+advisory:": 3306,
  "mariadb+advisory:": 3306,
  "zookeeper:": 2181,
  "etcd:": 2379,
  "nats:": 4222,
  // the server of a rival, which names its port
  "tcp:": 0,
};

export interface ProxiedStore {
  readonly target: Address;
  /** The url of the store, as it is reached at this address. */
  urlAt(address: Address): string;
}

/**
 * Null: a proxy cannot be put before it, because it has several addresses, none, or TLS. None is put before a Unix socket: there the
 * end of a connection is the death of its process, which a proxy would feign.
 */
export function findProxyTarget(url: string): ProxiedStore | null {
  const scheme = /^[a-z\d+]+:/i.exec(url)?.[0].toLowerCase() ?? "";
  const defaultPort = DEFAULT_PORTS[scheme];
  // the parser of urls knows no list of hosts
  const parts = /^([a-z\d+]+:\/\/(?:[^@/?#]*@)?)([^@/?#,]+)([/?#].*)?$/i.exec(url);
  if (defaultPort === undefined || parts === null) return null;
  if (/[?&](?:tls|ssl|sslmode|ca)=(?!disable)/i.test(url)) return null;
  const [, before = "", host = "", after = ""] = parts;
  const [, name = "", port] = /^(.*?)(?::(\d+))?$/.exec(host) ?? [];
  const target = { host: name.replace(/^\[|\]$/g, ""), port: port === undefined ? defaultPort : Number(port) };
  return {
    target,
    urlAt: (address) => ("path" in address ? url : `${before}${address.host}:${address.port}${after}`),
  };
}

/** The url with which nothing is created in a database of a user. */
export function withoutCreation(url: string): string {
  if (!/^(?:postgres(?:ql)?|mysql|mariadb|sqlite):/i.test(url) || /[?&]createTables=/.test(url)) return url;
  return `${url}${url.includes("?") ? "&" : "?"}createTables=false`;
}
