/** Where a server of the bench listens: a path of a Unix socket, or "tcp:PORT" on this machine's loopback. */

import { once } from "node:events";
import type { AddressInfo, TcpNetConnectOpts } from "node:net";
import { createServer } from "node:net";

/**
 * What a server is started with: where its socket and its state may lie, and whether it is to listen on TCP instead.
 */
export interface ListenRequest {
  readonly path: string;
  readonly tcp: boolean;
}

/** For node:net. */
export function parseEndpoint(address: string): { readonly path: string } | TcpNetConnectOpts {
  const port = parsePort(address);
  return port === null ? { path: address } : { host: "127.0.0.1", port, noDelay: true };
}

/** Null for a Unix socket. */
export function parsePort(address: string): number | null {
  return address.startsWith("tcp:") ? Number(address.slice("tcp:".length)) : null;
}

/** For a server that cannot choose a free port itself. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
