/**
 * Refuses requests of foreign web pages, by the headers Origin, Sec-Fetch-Site and Host (DNS rebinding: a foreign name that
 * resolves to this server), and ambiguous requests. It checks only the head of a request, for every method.
 */

import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { isLoopback } from "../../util/loopback.ts";
import { Problem } from "./problem.ts";

/** The hosts that the Host header may name. */
export interface AllowedHosts {
  /** The host of the --http address. */
  readonly host: string;
  /** Further names of this server. */
  readonly names: readonly string[];
}

/** Headers that may occur only once: a proxy and this server could each use a different one. */
const SINGLE_HEADERS: readonly string[] = ["host", "authorization", "content-type", "content-length", "origin"];

/** The addresses of the views of the dashboard, and nothing that could be decoded to another path. */
const PAGES = /^\/ui(?:\/(?:k[/?][^/?#]*|holders|events|now|store)?)?(?:\?|$)/;

/** @throws Problem for a request that must be refused */
export function checkOrigin(incoming: IncomingMessage, hosts: AllowedHosts): void {
  for (const name of SINGLE_HEADERS) {
    if ((incoming.headersDistinct[name]?.length ?? 0) > 1)
      throw duplicateHeader(name, `there is more than one ${name} header`);
  }
  const target = incoming.url ?? "";
  if (!target.startsWith("/") || target.startsWith("//")) {
    throw new Problem("INVALID", "malformed", "the request target must be a path", { close: true });
  }
  const { host, origin } = incoming.headers;
  if (host === undefined) throw new Problem("INVALID", "missing", "the Host header is missing", { close: true });
  if (!isAllowedHost(host, incoming, hosts)) {
    throw forbiddenProblem("host", "the Host header does not match this server; add the name with --http-name");
  }
  if (origin !== undefined && !isSameOrigin(origin, host, incoming, hosts)) {
    throw forbiddenProblem("origin", "requests from foreign web pages are refused");
  }
  const site = incoming.headers["sec-fetch-site"];
  if (site !== undefined && site !== "same-origin" && site !== "none" && !isLinkToPage(incoming)) {
    throw forbiddenProblem("site", "requests from foreign web pages are refused");
  }
}

/**
 * A link in a foreign page, followed to a page of the dashboard. The page contains no data, cannot be framed, and
 * without a page of this server the browser sends no cookie.
 */
function isLinkToPage({ method, url = "", headers }: IncomingMessage): boolean {
  const isNavigation = headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
  return isNavigation && method === "GET" && PAGES.test(url);
}

function isAllowedHost(header: string, incoming: IncomingMessage, { host, names }: AllowedHosts): boolean {
  const requested = parseHost(header);
  if (requested === null) return false;
  const localAddress = unmapIpv4(incoming.socket.localAddress ?? "");
  if (requested === localAddress || requested === unmapIpv4(host.toLowerCase())) return true;
  if (isLoopback(localAddress) && isLoopback(requested)) return true;
  return names.some((name) => name.toLowerCase() === requested);
}

/** The host of "host:port", "[::1]:port" or "host", in lower case; null for anything else. The port is ignored. */
function parseHost(header: string): string | null {
  const match = /^(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::\d{1,5})?$/.exec(header.toLowerCase());
  return match === null ? null : unmapIpv4((match[1] ?? match[2]) as string);
}

/** An IPv4 address mapped to IPv6 is the same address. */
function unmapIpv4(address: string): string {
  return address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
}

/**
 * Does the Origin header name the scheme, host and port of this server? A further name may be that of a proxy with TLS in
 * front of a server without it: the pages of that name then come through the proxy.
 */
function isSameOrigin(origin: string, host: string, incoming: IncomingMessage, { names }: AllowedHosts): boolean {
  const isFurtherName = names.some((name) => name.toLowerCase() === parseHost(host));
  const schemes = isEncrypted(incoming) ? ["https"] : isFurtherName ? ["http", "https"] : ["http"];
  return schemes.some((scheme) => origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`);
}

/** Did the request come over TLS? */
export function isEncrypted({ socket }: IncomingMessage): boolean {
  return (socket as Partial<TLSSocket>).encrypted === true;
}

function duplicateHeader(field: string, message: string): Problem {
  return new Problem("INVALID", "duplicate", message, { field, close: true });
}

function forbiddenProblem(reason: string, message: string): Problem {
  return new Problem("FORBIDDEN", reason, message, { close: true });
}
