/** The driver of a Redis URL. It creates an ioredis client; ioredis is loaded only here. */

import { readFileSync } from "node:fs";
import { FatalDriverError } from "../../errors.ts";
import type { Driver } from "../../spi/driver.ts";
import type { RedisClient } from "./clients/types.ts";
import type { RedisOptions } from "./driver.ts";
import { redis } from "./driver.ts";
import type { RedisEndpoint } from "./url.ts";
import { parseRedisUrl } from "./url.ts";

/** Longest pause between attempts to reconnect, in milliseconds. */
const MAX_BACKOFF_MS = 2_000;

/**
 * Creates the driver of a URL; url.ts lists the forms.
 * @throws TypeError as connect()
 */
export function redisFromUrl(url: string, options: RedisOptions): Driver {
  const endpoint = parseRedisUrl(url);
  const { prefix, guardDataLoss, replicas, silenceWarnings } = endpoint;
  return redis(() => createClient(endpoint, options.connectTimeoutMs ?? 5_000), {
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
          sentinelRetryStrategy: retryDelayMs,
          ...(tls !== undefined && { enableTLSForSentinelMode: true, sentinelTLS: tls }),
        }
      : firstHost),
    db: endpoint.database,
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    retryStrategy: retryDelayMs,
    // the master was demoted: reconnecting finds the new one
    reconnectOnError: ({ message }: Error) => message.startsWith("READONLY"),
  });
}

function retryDelayMs(attempts: number): number {
  return Math.random() * Math.min(50 * 2 ** attempts, MAX_BACKOFF_MS);
}

/** @throws FatalDriverError if the file cannot be read */
function readTlsOptions({ ca, servername }: NonNullable<RedisEndpoint["tls"]>): object {
  return { ...(ca !== undefined && { ca: readCaFile(ca) }), ...(servername !== undefined && { servername }) };
}

function readCaFile(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new FatalDriverError(`url: ca names ${path}, which cannot be read (${code})`, { cause });
  }
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
    throw new FatalDriverError('Redis URLs need the package "ioredis", which is not installed: npm install ioredis', {
      cause,
    });
  }
}
