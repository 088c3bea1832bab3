/** Parses and prints listening addresses. */

import { describeValue } from "../../util/duration.ts";
import { isLoopback } from "../../util/loopback.ts";
import { formatServerUrl, parseSocketUrl } from "../../util/server-url.ts";

/** The longest path of a Unix socket that every supported system accepts, in bytes. */
const MAX_PATH_BYTES = 103;
const MAX_PORT = 65_535;

/** A host and a port; 0: any free port. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Where a server listens. */
export type ListenAddress = { readonly path: string } | (HostPort & { readonly tls: boolean });

/**
 * Parses "holdfast+unix:/path", "holdfast://host:port" or "holdfasts://host:port".
 * @throws TypeError that says what is wrong
 */
export function parseListenAddress(text: unknown): ListenAddress {
  if (typeof text !== "string") throw new TypeError(`an address must be a string, not ${describeValue(text)}`);
  if (/^holdfast\+unix:/i.test(text)) return { path: parseSocketPath(text) };
  const [scheme] = /^holdfasts?:\/\//i.exec(text) ?? [];
  if (scheme === undefined) throw new TypeError(describeMissingScheme(text));
  return { ...parseHostAndPort(text, text.slice(scheme.length), 7420), tls: scheme.toLowerCase() === "holdfasts://" };
}

/** Parses "host:port" or "[::1]:port". @throws TypeError that says what is wrong */
export function parseHostPort(text: unknown): HostPort {
  if (typeof text !== "string") throw new TypeError(`${describeValue(text)} is not host:port, such as 127.0.0.1:7421`);
  return parseHostAndPort(text, text, 7421);
}

/** `text` is the complete address and `defaultPort` the usual port, both for messages. */
function parseHostAndPort(text: string, hostPort: string, defaultPort: number): HostPort {
  const [, host, digits] = /^(\[[0-9a-f:.]+\]|[^/:[\]\s@]+)(?::([^/\s@]*))?$/i.exec(hostPort) ?? [];
  if (host === undefined)
    throw new TypeError(`${describeValue(text)} is not host:port, such as 127.0.0.1:${defaultPort}`);
  const scheme = text.slice(0, text.length - hostPort.length);
  if (digits === undefined || digits === "") {
    throw new TypeError(`${describeValue(text)} has no port: use ${scheme}${host}:${defaultPort}`);
  }
  if (!/^\d{1,9}$/.test(digits) || Number(digits) > MAX_PORT) {
    throw new TypeError(
      `the port of ${describeValue(text)} must be a number from 0 to ${MAX_PORT}, not ${describeValue(digits)}`,
    );
  }
  const address = host.replace(/^\[|\]$/g, "");
  // "localhost" may resolve to either of two addresses, but clients are told one
  return { host: address.toLowerCase() === "localhost" ? "127.0.0.1" : address, port: Number(digits) };
}

/** The message for an address without a known scheme, with what was probably meant. */
function describeMissingScheme(text: string): string {
  const problem = `${describeValue(text)} is not holdfast+unix:/path, holdfast://host:port or holdfasts://host:port`;
  if (text.startsWith("/")) return `${problem}; did you mean holdfast+unix:${text}?`;
  return /^(\[[0-9a-f:.]+\]|[^/:[\]\s@]+):\d{1,5}$/i.test(text)
    ? `${problem}; did you mean holdfast://${text}?`
    : problem;
}

/** The printed form of an address, which connect() and serve() take. */
export function formatListenAddress(address: ListenAddress): string {
  return formatServerUrl(address, !("path" in address) && address.tls);
}

/** True if another machine can connect to it. */
export function isReachableRemotely(address: ListenAddress): boolean {
  return !("path" in address || isLoopback(address.host));
}

function parseSocketPath(text: string): string {
  const path = parseSocketUrlOrNull(text);
  if (path === null) throw new TypeError(`${describeValue(text)} is not an absolute path, such as holdfast+unix:/path`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new TypeError(
      `the path of a socket has at most ${MAX_PATH_BYTES} bytes (set HOLDFAST_DIR to a shorter directory)`,
    );
  }
  return path;
}

function parseSocketUrlOrNull(text: string): string | null {
  try {
    return parseSocketUrl(text);
  } catch {
    // an invalid percent-encoding
    return null;
  }
}
