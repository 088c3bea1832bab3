/** Checks urls of database servers, before a library reads them: libraries ignore what they do not know. */

/** A url that a library can read. */
interface ServerUrl {
  readonly url: string;
}

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

/** @throws TypeError that does not contain the url, which may hold a password */
export function parsePostgresUrl(url: string): ServerUrl {
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
  return { url };
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
