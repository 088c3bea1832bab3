/** Listening addresses as people write them. */

import { shown } from "../duration.ts";
import { isLoopback } from "../loopback.ts";

/** A Unix socket's path may have this many bytes on every system we know. */
const MAX_PATH_BYTES = 103;
const MAX_PORT = 65_535;

/** A host and a port, 0: any. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Where a server listens. */
export type Address = { readonly path: string } | (HostPort & { readonly tls: boolean });

/** "unix:/path", "tcp://host:port" or "tls://host:port". @throws TypeError that says what is wrong with it */
export function addressOf(text: unknown): Address {
  if (typeof text !== "string") throw new TypeError(`an address is a text, not ${shown(text)}`);
  if (text.startsWith("unix:")) return { path: socketPathOf(text) };
  const [scheme] = /^(?:tcp|tls):\/\//i.exec(text) ?? [];
  if (scheme === undefined) throw new TypeError(withoutScheme(text));
  return { ...place(text, text.slice(scheme.length), 7420), tls: scheme.toLowerCase() === "tls://" };
}

/** "host:port", "[::1]:port". @throws TypeError that says what is wrong with it */
export function hostPortOf(text: unknown): HostPort {
  if (typeof text !== "string") throw new TypeError(`${shown(text)} is not host:port, as 127.0.0.1:7421`);
  return place(text, text, 7421);
}

/** `whole` is what was written, `port` the usual one, for messages. */
function place(whole: string, rest: string, port: number): HostPort {
  const [, host, digits] = /^(\[[0-9a-f:.]+\]|[^/:[\]\s@]+)(?::([^/\s@]*))?$/i.exec(rest) ?? [];
  if (host === undefined) throw new TypeError(`${shown(whole)} is not host:port, as 127.0.0.1:${port}`);
  const scheme = whole.slice(0, whole.length - rest.length);
  if (digits === undefined || digits === "") {
    throw new TypeError(`${shown(whole)} lacks a port: ${scheme}${host}:${port}`);
  }
  if (!/^\d{1,9}$/.test(digits) || Number(digits) > MAX_PORT) {
    throw new TypeError(`the port of ${shown(whole)} must be a number from 0 to ${MAX_PORT}, not ${shown(digits)}`);
  }
  const bare = host.replace(/^\[|\]$/g, "");
  // a system may give "localhost" one of two addresses; a client is told one
  return { host: bare.toLowerCase() === "localhost" ? "127.0.0.1" : bare, port: Number(digits) };
}

/** What is wrong with an address that begins with no scheme of ours, and what was probably meant. */
function withoutScheme(text: string): string {
  const none = `${shown(text)} is none of unix:/path, tcp://host:port and tls://host:port`;
  if (text.startsWith("/")) return `${none}; did you mean unix:${text}?`;
  return /^(\[[0-9a-f:.]+\]|[^/:[\]\s@]+):\d{1,5}$/i.test(text) ? `${none}; did you mean tcp://${text}?` : none;
}

/** How an address is printed, and may be given to serve() again. */
export function addressText(address: Address): string {
  if ("path" in address) return `unix:${address.path}`;
  return `${address.tls ? "tls" : "tcp"}://${hostPortText(address)}`;
}

/** With brackets around an IPv6 address. */
export function hostPortText({ host, port }: HostPort): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Can another machine connect to it? */
export function isOpen(address: Address): boolean {
  return !("path" in address || isLoopback(address.host));
}

function socketPathOf(text: string): string {
  const path = text.slice("unix:".length);
  if (!path.startsWith("/")) throw new TypeError(`${shown(text)} names no whole path, as unix:/path does`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new TypeError(`a socket's path has at most ${MAX_PATH_BYTES} bytes (HOLDFAST_DIR names a shorter folder)`);
  }
  return path;
}
