/**
 * The driver of a Redis URL. It creates an ioredis client; ioredis is loaded only here.
 *   redis://[user[:password]@]host[:6379][/database]
 *   redis+sentinel://[user[:password]@]host[:26379][,host...]/master[/database]
 *   redis+cluster://[user[:password]@]host[:6379][,host...]
 * The schemes rediss, rediss+sentinel and rediss+cluster use TLS.
 * Parameters: prefix; guardDataLoss ("true", or the longest ttl such as "30s"); replicas (how many must acknowledge);
 * silenceWarnings (names separated by commas); with TLS also ca (a file) and servername.
 */

import { StoreRefusedError } from "../../errors.ts";
import { readNamedFile } from "../../os/files.ts";
import type { Driver } from "../../spi/driver.ts";
import { backoffMs } from "../../util/backoff.ts";
import { decodePercent } from "../../util/decode-percent.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import { parseGuardDataLoss } from "../data-loss-guard.ts";
import type { RedisClient } from "./clients/types.ts";
import { redis } from "./driver.ts";
import type { RedisOptions, WarningName } from "./options.ts";

/** The bounds of the pause between attempts to reconnect, in milliseconds. */
const INITIAL_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 2_000;
/** The library's timer keeps the process alive for so long after each attempt to connect that failed. */
const DISCONNECT_TIMEOUT_MS = 100;

/**
 * Creates the driver of a URL.
 * @throws TypeError as connect()
 */
export function redisFromUrl(url: string, options: RedisOptions): Driver {
  const endpoint = parseRedisUrl(url);
  const { prefix, guardDataLoss, replicas, silenceWarnings } = endpoint;
  return redis(() => createClient(endpoint, toConnectTimeoutMs(options.connectTimeout)), {
    ...options,
    ...(prefix !== undefined && { prefix }),
    ...(guardDataLoss !== undefined && { guardDataLoss }),
    ...(replicas !== undefined && { replicas }),
    ...(silenceWarnings !== undefined && { silenceWarnings }),
  });
}

/** A client without an offline queue and without resends: the claim machine retries with the same id. */
async function createClient(endpoint: RedisEndpoint, connectTimeout: number): Promise<RedisClient> {
  const { Redis, Cluster } = await loadIoredis();
  const { hosts, master, username, password } = endpoint;
  const tls = endpoint.tls && readTlsOptions(endpoint.tls);
  const settings = {
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(tls !== undefined && { tls }),
    connectTimeout,
    disconnectTimeout: DISCONNECT_TIMEOUT_MS,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
  };
  if (endpoint.topology === "cluster") {
    return new Cluster([...hosts], {
      lazyConnect: true,
      enableOfflineQueue: false,
      enableAutoPipelining: false,
      clusterRetryStrategy: retryDelayMs,
      redisOptions: settings,
      // Cluster nodes announce IP addresses, but certificates are issued for host names
      ...(tls !== undefined && {
        dnsLookup: (name: string, callback: (error: null, name: string) => void) => callback(null, name),
      }),
    });
  }
  const [firstHost] = hosts;
  return new Redis({
    ...settings,
    ...(endpoint.topology === "sentinel"
      ? {
          sentinels: [...hosts],
          name: master,
          // its pauses would keep the process alive: the driver starts a client that has ended again
          sentinelRetryStrategy: null,
          // one that accepts connections but does not answer: the next one is asked
          sentinelCommandTimeout: connectTimeout,
          ...(tls !== undefined && { enableTLSForSentinelMode: true, sentinelTLS: tls }),
        }
      : firstHost),
    db: endpoint.database,
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    retryStrategy: retryDelayMs,
  });
}

function retryDelayMs(attempts: number): number {
  return backoffMs(attempts, Math.random(), MAX_BACKOFF_MS, INITIAL_BACKOFF_MS);
}

/** @throws StoreRefusedError if the file cannot be read */
function readTlsOptions({ ca, servername }: NonNullable<RedisEndpoint["tls"]>): object {
  return {
    ...(ca !== undefined && { ca: readNamedFile(ca, "url: ca") }),
    ...(servername !== undefined && { servername }),
  };
}

/** The part of ioredis that is used here. Its own types would make it a dependency of the published types. */
interface IoredisModule {
  readonly Redis: new (options: object) => RedisClient;
  readonly Cluster: new (hosts: readonly object[], options: object) => RedisClient;
}

async function loadIoredis(): Promise<IoredisModule> {
  try {
    return (await import("ioredis")) as unknown as IoredisModule;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    // MODULE_NOT_FOUND comes from a CommonJS bundle
    if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") throw cause;
    throw new StoreRefusedError('Redis URLs need the package "ioredis", which is not installed: npm install ioredis', {
      cause,
    });
  }
}

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
