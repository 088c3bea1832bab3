/** Listening sockets, and their connections as transports. */

import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import type { AddressInfo, Server as NetServer, Socket } from "node:net";
import { connect, createServer } from "node:net";
import type { LockService } from "../service.ts";
import type { HostPort, ListenAddress } from "./listen-address.ts";
import { formatListenAddress } from "./listen-address.ts";
import { attachPlainSocket } from "./socket-transport.ts";
import { createTlsAcceptor } from "./tls-acceptor.ts";
import type { TlsConfig } from "./tls-config.ts";

/** How long pending output of a closing connection may take. */
export const LINGER_MS = 1_000;

/** One listening address of a server. */
export interface Listener {
  readonly address: string;
  /** New connections use this certificate. No effect without TLS. */
  replaceCertificate(tlsConfig: TlsConfig): void;
  /** Accepts no more connections. */
  stopAccepting(): void;
  /** Settles when all connections have ended; remaining ones are destroyed after a while. */
  close(): Promise<void>;
}

/** The HTTP port. */
export interface HttpListener extends Omit<Listener, "stopAccepting"> {
  /** Refuses lock requests from now on. The port still answers, so that /ready can report the reason. */
  drain(): void;
}

/**
 * @param tls required if the address uses TLS
 * @throws a system error, naming the address, if listening fails
 */
export async function listen(address: ListenAddress, tls: TlsConfig | null, service: LockService): Promise<Listener> {
  const isLocal = "path" in address;
  const tlsAcceptor = isLocal || !address.tls ? null : createTlsAcceptor(tls as TlsConfig, service);
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 }, (socket) => {
    if (tlsAcceptor === null) attachPlainSocket(socket, service, isLocal);
    else tlsAcceptor.attach(socket);
  });
  const connections = trackConnections(server);
  try {
    if (isLocal) await removeStaleSocket(address.path);
    await bind(server, address);
  } catch (error) {
    throw describeListenError(error as NodeJS.ErrnoException, address);
  }
  return {
    address: formatListenAddress(isLocal ? address : { ...address, port: (server.address() as AddressInfo).port }),
    replaceCertificate: (tlsConfig) => tlsAcceptor?.replaceCertificate(tlsConfig),
    stopAccepting: () => server.close(),
    close: () => connections.close(),
  };
}

/** Ends a server with its connections: those that last longer than LINGER_MS are destroyed. */
export function trackConnections(server: NetServer): { close(): Promise<void> } {
  // a server's own list would lack connections in their TLS handshake
  const sockets = new Set<Socket>();
  server.prependListener("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  const closed = new Promise<void>((resolve) => {
    server.once("close", resolve);
  });
  return {
    async close() {
      if (server.listening) server.close();
      const timeout = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, LINGER_MS);
      await closed;
      clearTimeout(timeout);
    },
  };
}

function bind(server: NetServer, address: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen("path" in address ? { path: address.path } : toHostPort(address), () => {
      server.removeListener("error", reject);
      // a later error concerns one connection, which it ends
      server.on("error", () => undefined);
      resolve();
    });
    // the socket file exists already; other users must not connect even for a moment
    if ("path" in address && server.listening) chmodSync(address.path, 0o600);
  });
}

function toHostPort({ host, port }: HostPort): HostPort {
  return { host, port };
}

const LISTEN_ERRORS: Readonly<Record<string, (address: string) => string>> = {
  EADDRINUSE: (address) => `another program already listens on ${address}`,
  EADDRNOTAVAIL: (address) => `this machine does not have the address of ${address}`,
  EACCES: (address) => `no permission to listen on ${address}`,
  ENOENT: (address) => `the directory of ${address} does not exist`,
  ENOTDIR: (address) => `the directory of ${address} does not exist`,
  ENOTFOUND: (address) => `unknown host in ${address}`,
  EAI_AGAIN: (address) => `DNS lookup failed temporarily for ${address}`,
};

/** Adds the address and a plain explanation to an error of listen(). */
function describeListenError(error: NodeJS.ErrnoException, address: ListenAddress): Error {
  const describe = LISTEN_ERRORS[error.code ?? ""];
  if (describe === undefined && !("syscall" in error)) return error;
  const text = formatListenAddress(address);
  const message = describe === undefined ? `${text}: ${error.message}` : describe(text);
  return Object.assign(new Error(message, { cause: error }), { code: error.code });
}

/** Removes a socket file without a listening server. The caller holds the lock for the path. */
async function removeStaleSocket(path: string): Promise<void> {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isSocket()) throw new Error(`${path} is not a socket: move it away`);
  const isStale = await new Promise<boolean>((resolve) => {
    const socket = connect({ path });
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    // only these two codes mean that no server listens: a stopped server with a full backlog causes EAGAIN
    socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code === "ECONNREFUSED" || code === "ENOENT"));
  });
  if (!isStale) throw new Error(`${path} is in use by another server`);
  unlinkSync(path);
}
