/** Listening addresses as people write them. */

import { shown } from "../duration.ts";
import { isLoopback } from "../loopback.ts";

/** A Unix socket's path may have this many bytes on every system we know. */
const MAX_PATH_BYTES = 103;

/** A host and a port, 0: any. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Where a server listens. */
export type Address = { readonly path: string } | (HostPort & { readonly tls: boolean });

/** "unix:/path", "tcp://host:port" or "tls://host:port". @throws TypeError if it is none of them */
export function addressOf(text: unknown): Address {
  if (typeof text !== "string") throw new TypeError(`an address is a text, not ${shown(text)}`);
  if (text.startsWith("unix:")) return { path: socketPathOf(text) };
  const [scheme] = /^(?:tcp|tls):\/\//i.exec(text) ?? [];
  const place = scheme === undefined ? null : hostPort(text.slice(scheme.length));
  if (scheme === undefined || place === null) {
    throw new TypeError(`${shown(text)} is none of unix:/path, tcp://host:port and tls://host:port`);
  }
  return { ...place, tls: scheme.toLowerCase() === "tls://" };
}

/** "host:port", "[::1]:port". @throws TypeError if it is neither */
export function hostPortOf(text: unknown): HostPort {
  const place = typeof text === "string" ? hostPort(text) : null;
  if (place === null) throw new TypeError(`${shown(text)} is not host:port, as 127.0.0.1:7421`);
  return place;
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

function hostPort(text: string): HostPort | null {
  const [, host, digits] = /^(\[[0-9a-f:.]+\]|[^/:[\]\s@]+):(\d{1,5})$/i.exec(text) ?? [];
  const port = Number(digits);
  if (host === undefined || port > 65_535) return null;
  const bare = host.replace(/^\[|\]$/g, "");
  // a system may give "localhost" one of two addresses; a client is told one
  return { host: bare.toLowerCase() === "localhost" ? "127.0.0.1" : bare, port };
}

function socketPathOf(text: string): string {
  const path = text.slice("unix:".length);
  if (!path.startsWith("/")) throw new TypeError(`${shown(text)} names no whole path, as unix:/path does`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new TypeError(`a socket's path has at most ${MAX_PATH_BYTES} bytes (HOLDFAST_DIR names a shorter folder)`);
  }
  return path;
}
