/** The built-in drivers by the schemes of their urls; loaded by connect(), and each driver only when it is asked for. */

import { FatalDriverError } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import { describeValue, parseDuration } from "../util/duration.ts";
import { isLoopback } from "../util/loopback.ts";
import type { ConnectOptions } from "./connect.ts";
import type { Credential } from "./credential.ts";
import { resolveCredential } from "./credential.ts";

interface DriverUrlOptions {
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
  readonly parsesOwnUrl?: true;
  createDriver(url: string, options: DriverUrlOptions): Promise<Driver>;
}

/** The built-in drivers. */
const SCHEMES: Readonly<Record<string, Scheme>> = {
  "memory:": {
    parameters: [],
    async createDriver(url) {
      // a name would look as if others could share it
      if (!/^memory:(\/\/)?$/.test(url))
        throw new TypeError(`url of a store in memory is "memory:", not ${describeValue(url)}`);
      return (await import("../drivers/memory.ts")).memory();
    },
  },
  "holdfast:": {
    parameters: [],
    credential: true,
    async createDriver(url, options) {
      const address = parseHostPort(url);
      if (options.credential !== undefined && !isLoopback(address.host)) {
        throw new FatalDriverError(
          `the credential would cross the network in plain sight: ${address.host} must be reached by holdfasts:// (nothing was sent)`,
        );
      }
      const { server } = await import("../drivers/server/driver.ts");
      return server({ ...address, ...options });
    },
  },
  "holdfasts:": {
    parameters: ["ca", "cert", "key", "servername"],
    credential: true,
    async createDriver(url, options) {
      const address = parseHostPort(url);
      const tls = Object.fromEntries(new URL(url).searchParams);
      if ((tls.cert === undefined) !== (tls.key === undefined)) {
        throw new TypeError("url must name both cert and key, or neither");
      }
      const [{ server }, { createTlsConnector }] = await Promise.all([
        import("../drivers/server/driver.ts"),
        import("../net/tls.ts"),
      ]);
      return server({ ...address, ...options, connector: createTlsConnector(address, tls) });
    },
  },
  "holdfast+unix:": {
    parameters: [],
    credential: true,
    async createDriver(url, options) {
      const { host, pathname, hash } = new URL(url);
      const path = decodePath(pathname);
      // what the parser takes for a host or a fragment is a part of the path to whoever wrote it
      if (host !== "" || hash !== "" || !path.startsWith("/") || path === "/") {
        throw new TypeError(
          `url must name a socket by its whole path: holdfast+unix:/path/to/socket, not ${describeValue(url)}`,
        );
      }
      const { server } = await import("../drivers/server/driver.ts");
      return server({ path, ...options });
    },
  },
  "zookeeper:": { parameters: [], parsesOwnUrl: true, createDriver: zookeeperDriver },
  "zookeepers:": { parameters: [], parsesOwnUrl: true, createDriver: zookeeperDriver },
  "redis:": { parameters: [], parsesOwnUrl: true, createDriver: redisDriver },
  "rediss:": { parameters: [], parsesOwnUrl: true, createDriver: redisDriver },
  "redis+sentinel:": { parameters: [], parsesOwnUrl: true, createDriver: redisDriver },
  "rediss+sentinel:": { parameters: [], parsesOwnUrl: true, createDriver: redisDriver },
  "redis+cluster:": { parameters: [], parsesOwnUrl: true, createDriver: redisDriver },
  "rediss+cluster:": { parameters: [], parsesOwnUrl: true, createDriver: redisDriver },
};

async function zookeeperDriver(url: string, options: DriverUrlOptions): Promise<Driver> {
  return (await import("../drivers/zookeeper/from-url.ts")).zookeeperFromUrl(url, options);
}

async function redisDriver(url: string, { connectTimeoutMs, label }: DriverUrlOptions): Promise<Driver> {
  return (await import("../drivers/redis/from-url.ts")).redisFromUrl(url, { connectTimeoutMs, label });
}

/** The driver of a url, not opened yet. @throws TypeError as connect() */
export async function createDriver(
  urlOption: string | undefined,
  options: { readonly [Name in "connectTimeout" | "credential" | "label"]?: ConnectOptions[Name] | undefined } = {},
): Promise<Driver> {
  // an empty variable is none, but an empty argument is a mistake: it must not become another store
  const url = urlOption === undefined ? process.env.HOLDFAST_URL || undefined : urlOption;
  const { connectTimeout = 5_000, label = "" } = options;
  const connectTimeoutMs = parseDuration(connectTimeout, "connectTimeout");
  if (url === undefined) {
    rejectCredential(options.credential, "your own server");
    const { createAutostartDriver } = await import("../drivers/server/autostart.ts");
    return createAutostartDriver({ connectTimeoutMs, label });
  }
  const ownParser = typeof url === "string" ? SCHEMES[/^[a-z+]+:/.exec(url)?.[0] ?? ""] : undefined;
  if (ownParser?.parsesOwnUrl) {
    rejectCredential(options.credential, url.slice(0, url.indexOf(":") + 1));
    return ownParser.createDriver(url, { connectTimeoutMs, label });
  }
  if (typeof url !== "string" || !URL.canParse(url)) {
    throw new TypeError(`url must be a url, for example redis://host:6379, not ${describeValue(url)}`);
  }
  const { protocol, searchParams, username, password } = new URL(url);
  const scheme = SCHEMES[protocol];
  if (scheme === undefined) {
    throw new TypeError(`url must begin with one of ${Object.keys(SCHEMES).join(" ")}, not ${describeValue(protocol)}`);
  }
  if (username !== "" || password !== "") throw new TypeError("url must not carry a user or password for this store");
  // a mistyped parameter must not silently mean something else
  for (const name of searchParams.keys()) {
    if (!scheme.parameters.includes(name))
      throw new TypeError(`url has no parameter ${describeValue(name)} for ${protocol}`);
  }
  if (scheme.credential === undefined) rejectCredential(options.credential, protocol);
  const credential = scheme.credential && resolveCredential(options.credential);
  return scheme.createDriver(url, { connectTimeoutMs, label, ...(credential !== undefined && { credential }) });
}

function rejectCredential(credential: unknown, subject: string): void {
  if (credential !== undefined) throw new TypeError(`credential means nothing to ${subject}, which asks for none`);
}

/** Host and port, without anything else behind them. */
function parseHostPort(url: string): { readonly host: string; readonly port: number } {
  const { protocol, hostname, port, pathname, hash } = new URL(url);
  if (hostname === "" || !["", "/"].includes(pathname) || hash !== "") {
    throw new TypeError(
      `url must name a host and nothing else: ${protocol}//host:7420, not ${describeValue(redactPassword(url))}`,
    );
  }
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? 7420 : Number(port) };
}

/** A url without its password, for messages. */
function redactPassword(url: string): string {
  const parsed = new URL(url);
  if (parsed.password !== "") parsed.password = "redacted";
  return parsed.href;
}

function decodePath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch (cause) {
    throw new TypeError("url must be percent-encoded properly", { cause });
  }
}
