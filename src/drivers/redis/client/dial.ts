/** A Redis by its url, for which we make the client: ioredis, loaded only then. */

import { FatalDriverError } from "../../../errors.ts";
import type { Driver } from "../../../spi/driver.ts";
import type { RedisOptions } from "../driver.ts";
import { redis } from "../driver.ts";
import type { IoredisLike } from "./shapes.ts";

/** Longest pause between attempts to connect again, in milliseconds. */
const LONGEST_PAUSE_MS = 2_000;

/** The driver of `redis://[user[:password]@]host[:port][/database]`, or `rediss://` over TLS. @throws TypeError as connect() */
export function redisAt(url: string, options: RedisOptions): Driver {
  const { protocol, hostname, port, username, password, pathname, hash, searchParams } = new URL(url);
  const database = /^(?:\/(\d{1,4})?)?$/.exec(pathname);
  if (hostname === "" || database === null || hash !== "") {
    // the url may hold a password, so it is not shown
    throw new TypeError(`url must have the form ${protocol}//user:password@host:6379/0`);
  }
  const prefix = searchParams.get("prefix");
  const settings = {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? 6379 : Number(port),
    db: Number(database[1] ?? 0),
    ...(username !== "" && { username: decodeURIComponent(username) }),
    ...(password !== "" && { password: decodeURIComponent(password) }),
    ...(protocol === "rediss:" && { tls: tlsOf(searchParams) }),
  };
  return redis(() => made(settings, options.connectTimeoutMs ?? 5_000), {
    ...options,
    ...(prefix !== null && { prefix }),
  });
}

function tlsOf(parameters: URLSearchParams): object {
  const servername = parameters.get("servername");
  return servername === null ? {} : { servername };
}

/** A client that keeps nothing for later and repeats nothing: the core asks again, with the same id. */
async function made(settings: object, connectTimeout: number): Promise<IoredisLike> {
  const { Redis } = await library();
  return new Redis({
    ...settings,
    connectTimeout,
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    enableAutoPipelining: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (attempts: number) => Math.random() * Math.min(50 * 2 ** attempts, LONGEST_PAUSE_MS),
  });
}

/** As far as we use it; its types stay out of ours, since it need not be installed. */
interface Library {
  readonly Redis: new (options: object) => IoredisLike;
}

async function library(): Promise<Library> {
  try {
    return (await import("ioredis")) as unknown as Library;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw cause;
    throw new FatalDriverError(
      'urls of Redis need the package "ioredis", which is not installed: npm install ioredis',
      {
        cause,
      },
    );
  }
}
