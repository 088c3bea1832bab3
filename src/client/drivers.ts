/** The built-in drivers by the schemes of their urls; loaded by connect(), and each driver only when it is asked for. */

import { durationMs, shown } from "../duration.ts";
import { FatalDriverError } from "../errors.ts";
import { isLoopback } from "../loopback.ts";
import type { Driver } from "../spi/driver.ts";
import type { ConnectOptions } from "./connect.ts";
import type { Credential } from "./credential.ts";
import { credentialOf } from "./credential.ts";

interface DialOptions {
  readonly connectTimeoutMs: number;
  /** For claims that bring no label of their own. */
  readonly label: string;
  /** What the server shall know us by; undefined: nothing. */
  readonly credential?: Credential;
}

interface Scheme {
  /** Query parameters it knows. */
  readonly parameters: readonly string[];
  /** Does the store know its clients by a credential of ours? */
  readonly credential?: true;
  /** Its urls may name several hosts, or carry a password: it checks them whole. */
  readonly whole?: true;
  driver(url: string, options: DialOptions): Promise<Driver>;
}

/** The built-in drivers. */
const SCHEMES: Readonly<Record<string, Scheme>> = {
  "memory:": {
    parameters: [],
    async driver(url) {
      // a name would look as if others could share it
      if (!/^memory:(\/\/)?$/.test(url))
        throw new TypeError(`url of a store in memory is "memory:", not ${shown(url)}`);
      return (await import("../drivers/memory.ts")).memory();
    },
  },
  "holdfast:": {
    parameters: [],
    credential: true,
    async driver(url, options) {
      const place = placeIn(url);
      if (options.credential !== undefined && !isLoopback(place.host)) {
        throw new FatalDriverError(
          `the credential would cross the network in plain sight: ${place.host} must be reached by holdfasts:// (nothing was sent)`,
        );
      }
      const { server } = await import("../drivers/server/driver.ts");
      return server({ ...place, ...options });
    },
  },
  "holdfasts:": {
    parameters: ["ca", "cert", "key", "servername"],
    credential: true,
    async driver(url, options) {
      const place = placeIn(url);
      const tls = Object.fromEntries(new URL(url).searchParams);
      if ((tls.cert === undefined) !== (tls.key === undefined)) {
        throw new TypeError("url must name both cert and key, or neither");
      }
      const [{ server }, { tlsDial }] = await Promise.all([
        import("../drivers/server/driver.ts"),
        import("../drivers/server/tls-wire.ts"),
      ]);
      return server({ ...place, ...options, dial: tlsDial(place, tls) });
    },
  },
  "holdfast+unix:": {
    parameters: [],
    credential: true,
    async driver(url, options) {
      const { host, pathname, hash } = new URL(url);
      const path = decoded(pathname);
      // what the parser takes for a host or a fragment is a part of the path to whoever wrote it
      if (host !== "" || hash !== "" || !path.startsWith("/") || path === "/") {
        throw new TypeError(
          `url must name a socket by its whole path: holdfast+unix:/path/to/socket, not ${shown(url)}`,
        );
      }
      const { server } = await import("../drivers/server/driver.ts");
      return server({ path, ...options });
    },
  },
  "zookeeper:": { parameters: [], whole: true, driver: ensemble },
  "zookeepers:": { parameters: [], whole: true, driver: ensemble },
  "redis:": { parameters: [], whole: true, driver: redis },
  "rediss:": { parameters: [], whole: true, driver: redis },
  "redis+sentinel:": { parameters: [], whole: true, driver: redis },
  "rediss+sentinel:": { parameters: [], whole: true, driver: redis },
  "redis+cluster:": { parameters: [], whole: true, driver: redis },
  "rediss+cluster:": { parameters: [], whole: true, driver: redis },
};

async function ensemble(url: string, options: DialOptions): Promise<Driver> {
  return (await import("../drivers/zookeeper/url.ts")).fromUrl(url, options);
}

async function redis(url: string, { connectTimeoutMs, label }: DialOptions): Promise<Driver> {
  return (await import("../drivers/redis/client/dial.ts")).redisAt(url, { connectTimeoutMs, label });
}

/** The driver of a url, not opened yet. @throws TypeError as connect() */
export async function driverFor(
  given: string | undefined,
  options: { readonly [Name in "connectTimeout" | "credential" | "label"]?: ConnectOptions[Name] | undefined } = {},
): Promise<Driver> {
  // an empty variable is none, but an empty argument is a mistake: it must not become another store
  const url = given === undefined ? process.env.HOLDFAST_URL || undefined : given;
  const { connectTimeout = 5_000, label = "" } = options;
  const connectTimeoutMs = durationMs(connectTimeout, "connectTimeout");
  if (url === undefined) {
    refuseCredential(options.credential, "your own server");
    const { onDemand } = await import("../drivers/server/on-demand.ts");
    return onDemand({ connectTimeoutMs, label });
  }
  const several = typeof url === "string" ? SCHEMES[/^[a-z+]+:/.exec(url)?.[0] ?? ""] : undefined;
  if (several?.whole) {
    refuseCredential(options.credential, url.slice(0, url.indexOf(":") + 1));
    return several.driver(url, { connectTimeoutMs, label });
  }
  if (typeof url !== "string" || !URL.canParse(url)) {
    throw new TypeError(`url must be a url, for example redis://host:6379, not ${shown(url)}`);
  }
  const { protocol, searchParams, username, password } = new URL(url);
  const scheme = SCHEMES[protocol];
  if (scheme === undefined) {
    throw new TypeError(`url must begin with one of ${Object.keys(SCHEMES).join(" ")}, not ${shown(protocol)}`);
  }
  if (username !== "" || password !== "") throw new TypeError("url must not carry a user or password for this store");
  // a mistyped parameter must not silently mean something else
  for (const name of searchParams.keys()) {
    if (!scheme.parameters.includes(name)) throw new TypeError(`url has no parameter ${shown(name)} for ${protocol}`);
  }
  if (scheme.credential === undefined) refuseCredential(options.credential, protocol);
  const credential = scheme.credential && credentialOf(options.credential);
  return scheme.driver(url, { connectTimeoutMs, label, ...(credential !== undefined && { credential }) });
}

function refuseCredential(credential: unknown, what: string): void {
  if (credential !== undefined) throw new TypeError(`credential means nothing to ${what}, which asks for none`);
}

/** Host and port, without anything else behind them. */
function placeIn(url: string): { readonly host: string; readonly port: number } {
  const { protocol, hostname, port, pathname, hash } = new URL(url);
  if (hostname === "" || !["", "/"].includes(pathname) || hash !== "") {
    throw new TypeError(`url must name a host and nothing else: ${protocol}//host:7420, not ${shown(redacted(url))}`);
  }
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? 7420 : Number(port) };
}

/** A url without its password, for messages. */
function redacted(url: string): string {
  const parsed = new URL(url);
  if (parsed.password !== "") parsed.password = "redacted";
  return parsed.href;
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch (cause) {
    throw new TypeError("url must be percent-encoded properly", { cause });
  }
}
