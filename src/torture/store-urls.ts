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

/** Their clients reach each member at its address in the url alone. Those of a Cluster, or behind Sentinels, learn others. */
const LISTS: readonly string[] = ["zookeeper:", "etcd:"];

export interface ProxiedStore {
  readonly targets: readonly Address[];
  /** The url of the store, as it is reached at these addresses. */
  urlAt(addresses: readonly Address[]): string;
}

/**
 * Null: proxies cannot be put before it, because it has TLS, no address, or others than those in its url. None is put before a Unix socket:
 * there the end of a connection is the death of its process, which a proxy would feign.
 */
export function findProxyTargets(url: string): ProxiedStore | null {
  const members = url.split(" ").map(findTargetsOfUrl);
  if (members.some((member) => member === null)) return null;
  const stores = members as readonly ProxiedStore[];
  return {
    targets: stores.flatMap(({ targets }) => targets),
    urlAt(addresses) {
      const left = [...addresses];
      return stores.map(({ targets, urlAt }) => urlAt(left.splice(0, targets.length))).join(" ");
    },
  };
}

function findTargetsOfUrl(url: string): ProxiedStore | null {
  const scheme = /^[a-z\d+]+:/i.exec(url)?.[0].toLowerCase() ?? "";
  const defaultPort = DEFAULT_PORTS[scheme];
  // the parser of urls knows no list of hosts
  const parts = /^([a-z\d+]+:\/\/(?:[^@/?#]*@)?)([^@/?#]+)([/?#].*)?$/i.exec(url);
  if (defaultPort === undefined || parts === null) return null;
  if (/[?&](?:tls|ssl|sslmode|ca)=(?!disable)/i.test(url)) return null;
  const [, before = "", hosts = "", after = ""] = parts;
  const names = hosts.split(",");
  if (names.length > 1 && !LISTS.includes(scheme)) return null;
  return {
    targets: names.map((name) => parseHost(name, defaultPort)),
    urlAt: (addresses) => `${before}${addresses.map(formatHost).join(",")}${after}`,
  };
}

function parseHost(text: string, defaultPort: number): Address {
  const [, name = "", port] = /^(.*?)(?::(\d+))?$/.exec(text) ?? [];
  return { host: name.replace(/^\[|\]$/g, ""), port: port === undefined ? defaultPort : Number(port) };
}

/** Proxies listen on ports. */
function formatHost(address: Address): string {
  return "path" in address ? address.path : `${address.host}:${address.port}`;
}

/** The url with which nothing is created in a database of a user. */
export function withoutCreation(url: string): string {
  if (!/^(?:postgres(?:ql)?|mysql|mariadb|sqlite):/i.test(url) || /[?&]createTables=/.test(url)) return url;
  return `${url}${url.includes("?") ? "&" : "?"}createTables=false`;
}
