/** Checks urls of database servers, before a library reads them: libraries ignore what they do not know. */

import { isObject } from "../../../util/validate.ts";

/** The parameters of a url that pg reads. */
const POSTGRES_PARAMETERS: readonly string[] = [
  "application_name",
  "client_encoding",
  "host",
  "idle_in_transaction_session_timeout",
  "lock_timeout",
  "options",
  "port",
  "ssl",
  "sslcert",
  "sslkey",
  "sslmode",
  "sslnegotiation",
  "sslrootcert",
  "statement_timeout",
  "uselibpqcompat",
];

const SSL_MODES: readonly string[] = ["disable", "no-verify", "prefer", "require", "verify-ca", "verify-full"];

/** The parameters of a url of MariaDB or MySQL. */
const MYSQL_PARAMETERS: readonly string[] = ["socketPath", "ssl"];

/** Those that postgres.js reads or sends to the server. */
const POSTGRES_JS_PARAMETERS: readonly string[] = [
  "application_name",
  "host",
  "idle_in_transaction_session_timeout",
  "lock_timeout",
  "options",
  "port",
  "sslmode",
  "sslnegotiation",
  "statement_timeout",
];

/** @throws TypeError that does not contain the url, which may hold a password */
export function parsePostgresUrl(url: string): URLSearchParams {
  const { protocol, searchParams } = parseServerUrl(
    url,
    ["postgres:", "postgresql:"],
    "user:password@host:5432/database",
  );
  for (const [name, value] of searchParams) {
    requireParameter(name, protocol, POSTGRES_PARAMETERS);
    if (name === "sslmode" && !SSL_MODES.includes(value)) {
      throw new TypeError(`url parameter sslmode must be one of ${SSL_MODES.join(", ")}`);
    }
  }
  return searchParams;
}

/**
 * What postgres.js would misunderstand becomes options: it would send host and port to the server, and it has other names
 * for two modes of TLS.
 * @throws TypeError if it does not support a parameter
 */
export function toPostgresJsSettings(
  url: string,
  parameters: URLSearchParams,
): { readonly url: string; readonly options: object } {
  for (const name of parameters.keys()) {
    if (POSTGRES_JS_PARAMETERS.includes(name)) continue;
    throw new TypeError(`url parameter ${name} needs the package "pg": postgres.js does not support it`);
  }
  const plain = new URLSearchParams(parameters);
  const [host, port, mode] = ["host", "port", "sslmode"].map((name) => {
    const value = plain.get(name);
    plain.delete(name);
    return value;
  });
  const [base = ""] = url.replace("@/", "@localhost/").split("?");
  return {
    url: plain.size === 0 ? base : `${base}?${plain}`,
    options: {
      ...(host && { host }),
      ...(port && { port: Number(port) }),
      ...(mode && mode !== "disable" && { ssl: toTlsOption(mode) }),
    },
  };
}

/** As pg understands the modes: all but no-verify check the certificate and the name. */
function toTlsOption(mode: string): object {
  return { rejectUnauthorized: mode !== "no-verify" };
}

/** A url of MariaDB or MySQL as settings that mysql2 and mariadb share. */
interface MysqlEndpoint {
  readonly options: {
    readonly host: string;
    readonly port: number;
    readonly user?: string;
    readonly password?: string;
    readonly database?: string;
    readonly socketPath?: string;
  };
  /** Undefined: no TLS. */
  readonly ssl?: object;
}

/** @throws TypeError that does not contain the url, which may hold a password */
export function parseMysqlUrl(url: string): MysqlEndpoint {
  const parsed = parseServerUrl(url, ["mysql:", "mariadb:"], "user:password@host:3306/database");
  const { protocol, hostname, port, username, password, pathname, searchParams } = parsed;
  for (const [name] of searchParams) requireParameter(name, protocol, MYSQL_PARAMETERS);
  const database = decodePercent(pathname.slice(1));
  const socketPath = searchParams.get("socketPath");
  const ssl = parseTls(searchParams.get("ssl"));
  return {
    options: {
      host: decodePercent(hostname).replace(/^\[(.*)\]$/, "$1"),
      port: Number(port || 3_306),
      ...(username !== "" && { user: decodePercent(username) }),
      ...(password !== "" && { password: decodePercent(password) }),
      ...(database !== "" && { database }),
      ...(socketPath !== null && { socketPath }),
    },
    ...(ssl !== null && { ssl }),
  };
}

/** "true": with the certificates of the system. */
function parseTls(text: string | null): object | null {
  if (text === null || text === "false") return null;
  if (text === "true") return { rejectUnauthorized: true };
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch {
    // as another value
  }
  throw new TypeError("url parameter ssl must be true, false or the options of tls.connect() as JSON");
}

function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (cause) {
    throw new TypeError("url must be percent-encoded properly", { cause });
  }
}

function parseServerUrl(url: string, protocols: readonly string[], form: string): URL {
  // a database on a socket has no host: postgres://user@/database?host=/run/postgresql
  const parsed = parseUrl(url) ?? parseUrl(url.replace("@/", "@localhost/"));
  if (parsed === null || !protocols.includes(parsed.protocol) || parsed.hash !== "") {
    const protocol = protocols.find((name) => url.startsWith(name)) ?? protocols[0];
    throw new TypeError(`url must have the form ${protocol}//${form}, percent-encoded`);
  }
  return parsed;
}

function parseUrl(url: string): URL | null {
  return URL.canParse(url) ? new URL(url) : null;
}

function requireParameter(name: string, protocol: string, known: readonly string[]): void {
  if (known.includes(name)) return;
  throw new TypeError(`url has no parameter ${JSON.stringify(name)} for ${protocol} (it has ${known.join(", ")})`);
}
