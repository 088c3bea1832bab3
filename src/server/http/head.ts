/**
 * Who may not even ask: web pages of others (by their Origin, by Sec-Fetch-Site, or by a name of theirs that leads here:
 * DNS rebinding), and requests that could be read in two ways. It looks at the head alone, and at every method.
 */

import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { isLoopback } from "../../loopback.ts";
import { Problem } from "./problem.ts";

/** Which hosts a request may name. */
export interface Hosts {
  /** The host that was asked to be listened on. */
  readonly host: string;
  /** Further names of this server. */
  readonly names: readonly string[];
}

/** Says nothing twice, or it would be read in two ways. */
const ONCE: readonly string[] = ["host", "authorization", "content-type", "content-length", "origin"];

/** @throws Problem unless the request may come in */
export function checkHead(incoming: IncomingMessage, hosts: Hosts): void {
  for (const name of ONCE) {
    if ((incoming.headersDistinct[name]?.length ?? 0) > 1) throw badHead(name, `there is more than one ${name} header`);
  }
  const target = incoming.url ?? "";
  if (!target.startsWith("/") || target.startsWith("//")) {
    throw new Problem(400, "INVALID", "malformed", "the request's target must be a path", { close: true });
  }
  const { host, origin } = incoming.headers;
  if (host === undefined) throw new Problem(400, "INVALID", "missing", "a Host header must be given", { close: true });
  if (!isOurs(host, incoming, hosts)) {
    throw forbidden("host", "the Host header names no name of this server (see --http-name)");
  }
  if (origin !== undefined && !isSame(origin, host, incoming)) {
    throw forbidden("origin", "requests of other web pages are refused");
  }
  const site = incoming.headers["sec-fetch-site"];
  if (site !== undefined && site !== "same-origin" && site !== "none") {
    throw forbidden("site", "requests of other web pages are refused");
  }
}

function isOurs(header: string, incoming: IncomingMessage, { host, names }: Hosts): boolean {
  const named = nameOf(header);
  if (named === null) return false;
  const local = plain(incoming.socket.localAddress ?? "");
  if (named === local || named === plain(host.toLowerCase())) return true;
  if (isLoopback(local) && isLoopback(named)) return true;
  return names.some((name) => name.toLowerCase() === named);
}

/** The host of "host:port", "[::1]:port" or "host", in lower case; null if it is none of these. The port is not looked at. */
function nameOf(header: string): string | null {
  const match = /^(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::\d{1,5})?$/.exec(header.toLowerCase());
  return match === null ? null : plain((match[1] ?? match[2]) as string);
}

/** An IPv4 address is the same one inside IPv6. */
function plain(address: string): string {
  return address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
}

/** Does the Origin say that the page came from this very host and port? */
function isSame(origin: string, host: string, incoming: IncomingMessage): boolean {
  const scheme = (incoming.socket as Partial<TLSSocket>).encrypted === true ? "https" : "http";
  return origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
}

function badHead(field: string, message: string): Problem {
  return new Problem(400, "INVALID", "duplicate", message, { field, close: true });
}

function forbidden(reason: string, message: string): Problem {
  return new Problem(403, "FORBIDDEN", reason, message, { close: true });
}
