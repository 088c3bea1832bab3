/**
 * The built-in drivers by the scheme of their url. connect() loads this file, and then only the driver that it needs.
 */

import { StoreRefusedError } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import { describeValue, parseDuration } from "../util/duration.ts";
import { isLoopback } from "../util/loopback.ts";
import { redactUrl } from "../util/redact-url.ts";
import { formatServerUrl, parseSocketUrl } from "../util/server-url.ts";
import type { Credential } from "./credential.ts";
import { resolveCredential } from "./credential.ts";
import type { ConnectOptions } from "./options.ts";

interface DriverUrlOptions {
  readonly connectTimeout: number;
  /** open() rejects at the first failure; only for schemes of lock servers. */
  readonly opensOnce?: boolean;
  /** The default label of claims. */
  readonly label: string;
  /** Sent to the server; undefined: none. */
  readonly credential?: Credential;
  /** Receives the warnings of a driver that has some; undefined: they are process warnings. */
  readonly warn?: (warning: string) => void;
}

interface Scheme {
  /** The query parameters that it accepts. */
  readonly parameters: readonly string[];
  /** Does the store accept the `credential` option? */
  readonly credential?: true;
  /** Its urls may have several hosts or a password, so the driver parses and checks them itself. */
  readonly parsesOwnUrl?: true;
  createDriver(url: string, options: DriverUrlOptions): Promise<Driver>;
}

/** The built-in drivers. */
const SCHEMES: Readonly<Record<string, Scheme>> = {
  "memory:": {
    parameters: [],
    createDriver: async (url) => (await import("../drivers/memory-from-url.ts")).memoryFromUrl(url),
  },
  "holdfast:": {
    parameters: [],
    credential: true,
    async createDriver(url, options) {
      const address = parseHostPort(url);
      if (options.credential !== undefined && !isLoopback(address.host)) {
        throw new StoreRefusedError(`refusing to send the credential to ${address.host} without TLS: use holdfasts://`);
      }
      const { lockServer } = await import("../drivers/server/driver.ts");
      return lockServer({ ...address, ...options });
    },
  },
  "holdfasts:": {
    parameters: ["ca", "cert", "key", "servername"],
    credential: true,
    async createDriver(url, options) {
      const address = parseHostPort(url);
      const tls = Object.fromEntries(new URL(url).searchParams);
      const [{ lockServer }, { createTlsConnector }] = await Promise.all([
        import("../drivers/server/driver.ts"),
        import("../net/tls.ts"),
      ]);
      const connector = createTlsConnector(address, tls, formatServerUrl(address, true));
      return lockServer({ ...address, ...options, connector });
    },
  },
  "holdfast+unix:": {
    parameters: [],
    credential: true,
    async createDriver(url, options) {
      const path = parseSocketPath(url);
      if (path === null) {
        throw new TypeError(
          `url must have the socket's absolute path: holdfast+unix:/path/to/socket, not ${describeValue(url)}`,
        );
      }
      const { lockServer } = await import("../drivers/server/driver.ts");
      return lockServer({ path, ...options });
    },
  },
  ...withOwnParser(["zookeeper:", "zookeepers:"], async (url, options) =>
    (await import("../drivers/zookeeper/from-url.ts")).zookeeperFromUrl(url, options),
  ),
  ...withOwnParser(["etcd:", "etcds:"], async (url, options) =>
    (await import("../drivers/etcd/from-url.ts")).etcdFromUrl(url, options),
  ),
  ...withOwnParser(
    ["redis:", "rediss:", "redis+sentinel:", "rediss+sentinel:", "redis+cluster:", "rediss+cluster:"],
    async (url, options) => (await import("../drivers/redis/from-url.ts")).redisFromUrl(url, options),
  ),
  ...withOwnParser(["postgres:", "postgresql:"], async (url, options) =>
    (await import("../drivers/sql/postgres/from-url.ts")).postgresFromUrl(url, options),
  ),
  ...withOwnParser(["postgres+advisory:", "postgresql+advisory:"], async (url, options) =>
    (await import("../drivers/sql/postgres/advisory-from-url.ts")).postgresAdvisoryFromUrl(url, options),
  ),
  ...withOwnParser(["sqlite:"], async (url, options) =>
    (await import("../drivers/sql/sqlite/from-url.ts")).sqliteFromUrl(url, options),
  ),
  ...withOwnParser(["mysql:", "mariadb:"], async (url, options) =>
    (await import("../drivers/sql/mysql/from-url.ts")).mysqlFromUrl(url, options),
  ),
  ...withOwnParser(["mysql+advisory:", "mariadb+advisory:"], async (url, options) =>
    (await import("../drivers/sql/mysql/advisory-from-url.ts")).mysqlAdvisoryFromUrl(url, options),
  ),
  ...withOwnParser(["nats:"], async (url, options) =>
    (await import("../drivers/nats/from-url.ts")).natsFromUrl(url, options),
  ),
  ...withOwnParser(["dynamodb:"], async (url, options) =>
    (await import("../drivers/dynamodb/from-url.ts")).dynamodbFromUrl(url, options),
  ),
  ...withOwnParser(["s3:"], async (url, options) =>
    (await import("../drivers/s3/from-url.ts")).s3FromUrl(url, options),
  ),
};

function withOwnParser(
  protocols: readonly string[],
  createDriver: Scheme["createDriver"],
): Readonly<Record<string, Scheme>> {
  return Object.fromEntries(protocols.map((name) => [name, { parameters: [], parsesOwnUrl: true, createDriver }]));
}

/** Creates the driver of a url; does not open it. @throws TypeError as connect() */
export async function createDriver(
  urlOption: string | undefined,
  options: {
    readonly [Name in "connectTimeout" | "credential" | "label"]?: ConnectOptions[Name] | undefined;
  } & { readonly warn?: ((warning: string) => void) | undefined; readonly opensOnce?: boolean } = {},
): Promise<Driver> {
  // an empty variable counts as unset; an empty argument is a mistake and must not select the default store
  const givenUrl = urlOption === undefined ? process.env.HOLDFAST_URL || undefined : urlOption;
  // schemes are case-insensitive
  const url =
    typeof givenUrl === "string" ? givenUrl.replace(/^[a-z\d+]+:/i, (scheme) => scheme.toLowerCase()) : givenUrl;
  const { label = "", warn, opensOnce = false, connectTimeout: timeout = 5_000 } = options;
  const connectTimeout = parseDuration(timeout, "connectTimeout", 1);
  if (url === undefined) {
    rejectCredential(options.credential, "the per-user server");
    const { createAutostartDriver } = await import("../drivers/server/autostart.ts");
    return createAutostartDriver({ connectTimeoutMs: connectTimeout, opensOnce, label });
  }
  const ownParser = typeof url === "string" ? SCHEMES[/^[a-z\d+]+:/.exec(url)?.[0] ?? ""] : undefined;
  if (ownParser?.parsesOwnUrl) {
    rejectCredential(options.credential, url.slice(0, url.indexOf(":") + 1));
    return ownParser.createDriver(url, { connectTimeout, label, ...(warn !== undefined && { warn }) });
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
  // a mistyped parameter must not be ignored silently
  for (const name of searchParams.keys()) {
    if (!scheme.parameters.includes(name))
      throw new TypeError(`url has no parameter ${describeValue(name)} for ${protocol}`);
  }
  if (scheme.credential === undefined) rejectCredential(options.credential, protocol);
  const credential = scheme.credential && resolveCredential(options.credential);
  return scheme.createDriver(url, {
    connectTimeout,
    opensOnce,
    label,
    ...(credential !== undefined && { credential }),
  });
}

function rejectCredential(credential: unknown, subject: string): void {
  if (credential !== undefined) throw new TypeError(`credential must not be set: ${subject} does not use it`);
}

/** Parses host and port; rejects a path or fragment after them. */
function parseHostPort(url: string): { readonly host: string; readonly port: number } {
  const { protocol, hostname, port, pathname, hash } = new URL(url);
  if (hostname === "" || !["", "/"].includes(pathname) || hash !== "") {
    throw new TypeError(
      `url must have a host and port only: ${protocol}//host:7420, not ${describeValue(redactUrl(url))}`,
    );
  }
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? 7420 : Number(port) };
}

function parseSocketPath(url: string): string | null {
  try {
    return parseSocketUrl(url);
  } catch (cause) {
    throw new TypeError("url must have a valid percent-encoding", { cause });
  }
}
