/** The url of a lock server: what clients connect to, and where servers listen. */

/** Where a lock server is found. */
export type ServerAddress = { readonly path: string } | { readonly host: string; readonly port: number };

/** Formats an address as a url that connect() and serve() take. */
export function formatServerUrl(address: ServerAddress, usesTls = false): string {
  if ("path" in address) return `holdfast+unix:${encodePath(address.path)}`;
  return `${usesTls ? "holdfasts" : "holdfast"}://${formatHostPort(address)}`;
}

/** With brackets around an IPv6 address. */
export function formatHostPort({ host, port }: { readonly host: string; readonly port: number }): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * The path of the socket in "holdfast+unix:/path"; null: it has no absolute path.
 * @throws URIError if its percent-encoding is invalid
 */
export function parseSocketUrl(url: string): string | null {
  if (!URL.canParse(url)) return null;
  const { host, pathname, search, hash } = new URL(url);
  // the url parser treats parts of a mistyped path as host, query or fragment; ignoring them would use another path
  if (host !== "" || search !== "" || hash !== "" || !pathname.startsWith("/") || pathname === "/") return null;
  return decodeURIComponent(pathname);
}

/** Characters of a path that a url has another meaning for, or drops. */
function encodePath(path: string): string {
  return path.replace(/^\/+/, "/").replace(/[%?#\s\p{Cc}]/gu, encodeURIComponent);
}
