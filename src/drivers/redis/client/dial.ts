/** A Redis by its url, for which we make the client: ioredis, loaded only then. */

import { readFileSync } from "node:fs";
import { FatalDriverError } from "../../../errors.ts";
import type { Driver } from "../../../spi/driver.ts";
import type { RedisOptions } from "../driver.ts";
import { redis } from "../driver.ts";
import type { RedisClient } from "./shapes.ts";
import type { RedisPlace } from "./url.ts";
import { placeOf } from "./url.ts";

/** Longest pause between attempts to connect again, in milliseconds. */
const LONGEST_PAUSE_MS = 2_000;

/**
 * The driver of a url: url.ts has the forms.
 * @throws TypeError as connect()
 */
export function redisAt(url: string, options: RedisOptions): Driver {
  const place = placeOf(url);
  const { prefix, guardDataLoss, replicas, silenceWarnings } = place;
  return redis(() => made(place, options.connectTimeoutMs ?? 5_000), {
    ...options,
    ...(prefix !== undefined && { prefix }),
    ...(guardDataLoss !== undefined && { guardDataLoss }),
    ...(replicas !== undefined && { replicas }),
    ...(silenceWarnings !== undefined && { silenceWarnings }),
  });
}

/** A client that keeps nothing for later and repeats nothing: the core asks again, with the same id. */
async function made(place: RedisPlace, connectTimeout: number): Promise<RedisClient> {
  const { Redis, Cluster } = await library();
  const { hosts, master, username, password } = place;
  const tls = place.tls && tlsOf(place.tls);
  const settings = {
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(tls !== undefined && { tls }),
    connectTimeout,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
  };
  if (place.topology === "cluster") {
    return new Cluster([...hosts], {
      lazyConnect: true,
      enableOfflineQueue: false,
      enableAutoPipelining: false,
      clusterRetryStrategy: pauseBefore,
      redisOptions: settings,
      // a certificate bears names, and Redis tells addresses
      ...(tls !== undefined && {
        dnsLookup: (name: string, done: (error: null, name: string) => void) => done(null, name),
      }),
    });
  }
  const [first] = hosts;
  return new Redis({
    ...settings,
    ...(place.topology === "sentinel"
      ? {
          sentinels: [...hosts],
          name: master,
          sentinelRetryStrategy: pauseBefore,
          ...(tls !== undefined && { enableTLSForSentinelMode: true, sentinelTLS: tls }),
        }
      : first),
    db: place.database,
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    retryStrategy: pauseBefore,
    // a master that became a replica refuses to write: another one has its place
    reconnectOnError: ({ message }: Error) => message.startsWith("READONLY"),
  });
}

function pauseBefore(attempts: number): number {
  return Math.random() * Math.min(50 * 2 ** attempts, LONGEST_PAUSE_MS);
}

/** @throws FatalDriverError if the file cannot be read */
function tlsOf({ ca, servername }: NonNullable<RedisPlace["tls"]>): object {
  return { ...(ca !== undefined && { ca: contentOf(ca) }), ...(servername !== undefined && { servername }) };
}

function contentOf(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new FatalDriverError(`url: ca names ${path}, which cannot be read (${code})`, { cause });
  }
}

/** As far as we use it; its types stay out of ours, since it need not be installed. */
interface Library {
  readonly Redis: new (options: object) => RedisClient;
  readonly Cluster: new (hosts: readonly object[], options: object) => RedisClient;
}

async function library(): Promise<Library> {
  try {
    return (await import("ioredis")) as unknown as Library;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    // the second: from a bundle of CommonJS
    if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") throw cause;
    throw new FatalDriverError(
      'urls of Redis need the package "ioredis", which is not installed: npm install ioredis',
      { cause },
    );
  }
}
