/** The built-in drivers by the schemes of their urls; loaded by connect(), and each driver only when it is asked for. */

import { durationMs, shown } from "../duration.ts";
import type { Driver } from "../spi/driver.ts";
import type { ConnectOptions } from "./connect.ts";

interface DialOptions {
  readonly connectTimeoutMs: number;
}

interface Scheme {
  /** Query parameters it knows. */
  readonly parameters: readonly string[];
  driver(url: string, options: DialOptions): Promise<Driver>;
}

/** The built-in drivers. */
const SCHEMES: Readonly<Record<string, Scheme>> = {
  "memory:": {
    parameters: [],
    driver: async () => (await import("../drivers/memory.ts")).memory(),
  },
  "holdfast:": {
    parameters: [],
    async driver(url, { connectTimeoutMs }) {
      const { hostname, port, pathname, hash } = new URL(url);
      if (hostname === "" || !["", "/"].includes(pathname) || hash !== "") {
        throw new TypeError(`url must name a host and nothing else: holdfast://host:7420, not ${shown(redacted(url))}`);
      }
      const host = hostname.replace(/^\[|\]$/g, "");
      const { server } = await import("../drivers/server/driver.ts");
      return server({ host, port: port === "" ? 7420 : Number(port), connectTimeoutMs });
    },
  },
  "holdfast+unix:": {
    parameters: [],
    async driver(url, { connectTimeoutMs }) {
      const path = decoded(new URL(url).pathname);
      if (path === "" || path === "/") throw new TypeError("url must name a socket: holdfast+unix:/path/to/socket");
      const { server } = await import("../drivers/server/driver.ts");
      return server({ path, connectTimeoutMs });
    },
  },
};

/** The driver of a url, not opened yet. @throws TypeError as connect() */
export async function driverFor(
  url: string | undefined = process.env.HOLDFAST_URL,
  options: Pick<ConnectOptions, "connectTimeout"> = {},
): Promise<Driver> {
  const connectTimeoutMs = durationMs(options.connectTimeout ?? 5_000, "connectTimeout");
  if (url === undefined || url === "") {
    const { onDemand } = await import("../drivers/server/on-demand.ts");
    return onDemand({ connectTimeoutMs });
  }
  if (typeof url !== "string" || !URL.canParse(url)) throw new TypeError(`url must be a url, not ${shown(url)}`);
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
  return scheme.driver(url, { connectTimeoutMs });
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
