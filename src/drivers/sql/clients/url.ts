/** Checks urls of database servers, before a library reads them: libraries ignore what they do not know. */

import { isIP } from "node:net";
import { StoreRefusedError } from "../../../errors.ts";
import { createTlsFileReader } from "../../../net/tls.ts";
import { decodePercent } from "../../../util/decode-percent.ts";
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

const SSL_FLAGS: ReadonlyMap<string, boolean> = new Map([
  ["true", true],
  ["1", true],
  ["false", false],
  ["0", false],
]);
const SSL_MODES: readonly string[] = ["disable", "no-verify", "prefer", "require", "verify-ca", "verify-full"];

/**
 * The files of TLS, by the names of the parameters that libpq and pg have, and of the options of MariaDB's and MySQL's
 * programs.
 */
const POSTGRES_FILES = { ca: "sslrootcert", cert: "sslcert", key: "sslkey" } as const;
const MYSQL_FILES = { ca: "ssl-ca", cert: "ssl-cert", key: "ssl-key" } as const;
type FileParameters = Readonly<Record<"ca" | "cert" | "key", string>>;

/** The parameters of a url of MariaDB or MySQL. */
const MYSQL_PARAMETERS: readonly string[] = ["socketPath", "ssl", ...Object.values(MYSQL_FILES)];

/** Those that postgres.js reads or sends to the server. */
const POSTGRES_JS_PARAMETERS: readonly string[] = [
  "application_name",
  "host",
  "idle_in_transaction_session_timeout",
  "lock_timeout",
  "options",
  "port",
  "sslnegotiation",
  "statement_timeout",
];

/**
 * @param driverParameters those that the driver has taken out of the url, for the message
 * @throws TypeError that does not contain the url, which may hold a password
 */
export function parsePostgresUrl(url: string, driverParameters: readonly string[] = []): URLSearchParams {
  const { protocol, searchParams } = parseServerUrl(
    url,
    ["postgres:", "postgresql:"],
    "user:password@host:5432/database",
  );
  for (const [name, value] of searchParams) {
    requireParameter(name, protocol, POSTGRES_PARAMETERS, driverParameters);
    if (name === "sslmode" && !SSL_MODES.includes(value)) {
      throw new TypeError(`url parameter sslmode must be one of ${SSL_MODES.join(", ")}`);
    }
    if (name === "ssl" && !SSL_FLAGS.has(value)) throw new TypeError("url parameter ssl must be true or false");
  }
  return searchParams;
}

/** A url of PostgreSQL without the parameters of TLS. */
interface PostgresEndpoint {
  readonly url: string;
  /** The options of tls.connect(). Undefined: what the url says, if anything. */
  readonly ssl?: object;
}

/**
 * Takes the parameters of TLS out of a url, so that they mean the same for both libraries: all modes but disable and
 * no-verify check the certificate and the name. With uselibpqcompat they stay, since pg alone knows those rules.
 * @throws TypeError if the files do not belong together; StoreRefusedError if one cannot be used
 */
export function takePostgresTls(url: string, parameters: URLSearchParams): PostgresEndpoint {
  if (parameters.has("uselibpqcompat")) return { url };
  const files = takeFiles(parameters, POSTGRES_FILES);
  const plain = new URLSearchParams(parameters);
  for (const name of ["ssl", "sslmode", ...Object.values(POSTGRES_FILES)]) plain.delete(name);
  const isDirect = parameters.get("sslnegotiation") === "direct";
  const isOn = SSL_FLAGS.get(parameters.get("ssl") ?? "") ?? (Object.keys(files).length > 0 || isDirect);
  const mode = parameters.get("sslmode") ?? (isOn ? "verify-full" : "disable");
  const plainUrl = replaceQuery(url, plain);
  if (mode === "disable") return { url: plainUrl };
  const host = parameters.get("host") ?? parseUrl(url)?.hostname.replace(/^\[(.*)\]$/, "$1") ?? "";
  return {
    url: plainUrl,
    ssl: { ...readFiles(files, POSTGRES_FILES), rejectUnauthorized: mode !== "no-verify", host },
  };
}

/** sslnegotiation in the url of pg would replace `ssl`. */
export function toPgSettings({ url, ssl }: PostgresEndpoint): object {
  if (ssl === undefined) return { connectionString: url };
  const parameters = new URLSearchParams(url.split("?")[1]);
  const sslnegotiation = parameters.get("sslnegotiation");
  parameters.delete("sslnegotiation");
  return { connectionString: replaceQuery(url, parameters), ssl, ...(sslnegotiation !== null && { sslnegotiation }) };
}

/**
 * What postgres.js would misunderstand becomes options: it would send host and port to the server.
 * @throws TypeError if it does not support a parameter
 */
export function toPostgresJsSettings({ url, ssl }: PostgresEndpoint): {
  readonly url: string;
  readonly options: object;
} {
  const [base = "", query = ""] = url.replace("@/", "@localhost/").split("?");
  const plain = new URLSearchParams(query);
  for (const name of plain.keys()) {
    if (POSTGRES_JS_PARAMETERS.includes(name)) continue;
    throw new TypeError(`url parameter ${name} needs the package "pg": postgres.js does not support it`);
  }
  const [host, port] = ["host", "port"].map((name) => {
    const value = plain.get(name);
    plain.delete(name);
    return value;
  });
  return {
    url: replaceQuery(base, plain),
    options: { ...(host && { host }), ...(port && { port: Number(port) }), ...(ssl !== undefined && { ssl }) },
  };
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
  readonly ssl?: TlsSettings;
}

/** The options of tls.connect(), and mysql2's own: whether the name in the certificate counts. */
interface TlsSettings {
  readonly rejectUnauthorized?: unknown;
  readonly verifyIdentity?: unknown;
  readonly servername?: unknown;
}

/**
 * Parses a url. The files that it names are read, and `ssl` contains them.
 * @param driverParameters those that the driver has taken out of the url, for the message
 * @throws TypeError that does not contain the url, which may hold a password; StoreRefusedError if a file cannot be
 * used
 */
export function parseMysqlUrl(url: string, driverParameters: readonly string[] = []): MysqlEndpoint {
  const parsed = parseServerUrl(url, ["mysql:", "mariadb:"], "user:password@host:3306/database");
  const { protocol, hostname, port, username, password, pathname, searchParams } = parsed;
  for (const [name] of searchParams) requireParameter(name, protocol, MYSQL_PARAMETERS, driverParameters);
  const database = decodePercent(pathname.slice(1));
  const socketPath = searchParams.get("socketPath");
  const files = takeFiles(searchParams, MYSQL_FILES);
  const hasFiles = Object.keys(files).length > 0;
  const ssl = parseTls(searchParams.get("ssl") ?? (hasFiles ? "true" : null));
  return {
    options: {
      host: decodePercent(hostname).replace(/^\[(.*)\]$/, "$1"),
      port: Number(port || 3_306),
      ...(username !== "" && { user: decodePercent(username) }),
      ...(password !== "" && { password: decodePercent(password) }),
      ...(database !== "" && { database }),
      ...(socketPath !== null && { socketPath }),
    },
    ...(ssl !== null && { ssl: { ...ssl, ...readFiles(files, MYSQL_FILES) } }),
  };
}

/**
 * What mysql2 needs to check a certificate: without verifyIdentity one for any name would do.
 * @throws StoreRefusedError for a server that is named by its address: mysql2 would compare the certificate with
 * "localhost"
 */
export function toMysql2Tls({ ssl = {}, options }: MysqlEndpoint): object {
  const { rejectUnauthorized, verifyIdentity = true } = ssl;
  const isChecked = rejectUnauthorized !== false && verifyIdentity !== false && options.socketPath === undefined;
  if (isChecked && isIP(options.host) !== 0) {
    throw new StoreRefusedError(
      `mysql: the package mysql2 cannot check a certificate for the address ${options.host}: name the server by its host name, or install mariadb instead`,
    );
  }
  return { verifyIdentity: true, ...ssl };
}

/** The files that a url names. @throws TypeError for a certificate without its key, or a key alone */
function takeFiles(parameters: URLSearchParams, names: FileParameters): Partial<Record<keyof FileParameters, string>> {
  if (parameters.has(names.cert) !== parameters.has(names.key)) {
    throw new TypeError(`url must have both parameters ${names.cert} and ${names.key}, or neither`);
  }
  const named = Object.entries(names).map(([file, name]) => [file, parameters.get(name)] as const);
  return Object.fromEntries(named.filter(([, path]) => path !== null));
}

function readFiles(files: Partial<Record<keyof FileParameters, string>>, names: FileParameters): object {
  return Object.keys(files).length === 0 ? {} : createTlsFileReader(files, names)();
}

function replaceQuery(url: string, query: URLSearchParams): string {
  const [base = ""] = url.split("?");
  return query.size === 0 ? base : `${base}?${query}`;
}

/** "true": with the certificates of the system. */
function parseTls(text: string | null): TlsSettings | null {
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

function parseServerUrl(url: string, protocols: readonly string[], form: string): URL {
  // a database on a socket has no host: postgres://user@/database?host=/run/postgresql
  const parsed = parseUrl(url) ?? parseUrl(url.replace("@/", "@localhost/"));
  const hasHost = /^[a-z]+:\/\//.test(url);
  if (parsed === null || !hasHost || !protocols.includes(parsed.protocol) || parsed.hash !== "") {
    const protocol = protocols.find((name) => url.startsWith(name)) ?? protocols[0];
    throw new TypeError(`url must have the form ${protocol}//${form}, percent-encoded`);
  }
  return parsed;
}

function parseUrl(url: string): URL | null {
  return URL.canParse(url) ? new URL(url) : null;
}

function requireParameter(
  name: string,
  protocol: string,
  known: readonly string[],
  driverParameters: readonly string[],
): void {
  if (known.includes(name)) return;
  const all = [...driverParameters, ...known].join(", ");
  throw new TypeError(`url has no parameter ${JSON.stringify(name)} for ${protocol} (it has ${all})`);
}
