/** Listening sockets, and connections as the streams of links. */

import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import type { AddressInfo, Server as NetServer, Socket } from "node:net";
import { connect, createServer } from "node:net";
import type { Address, HostPort } from "./address.ts";
import { addressText } from "./address.ts";
import type { Hub } from "./hub.ts";
import type { ServerLimits } from "./limits.ts";
import type { Log } from "./logging.ts";
import { createGate } from "./secure-stream.ts";
import { attachPlain } from "./stream.ts";
import type { TlsMaterial } from "./tls.ts";

/** How long what was written may take to leave a connection that ends. */
const LINGER_MS = 1_000;

/** One listening address of a server. */
export interface Listener {
  readonly address: string;
  /** New connections get this certificate. Means nothing where no TLS is spoken. */
  secure(material: TlsMaterial): void;
  /** Takes no further connection. */
  stop(): void;
  /** Settles when all connections have ended; those that have not after a while are cut. */
  close(): Promise<void>;
}

export interface ListenOptions {
  readonly address: Address;
  readonly hub: Hub;
  readonly limits: ServerLimits;
  /** Needed where the address speaks TLS. */
  readonly tls: TlsMaterial | null;
  readonly log: Log;
}

/** @throws Error of the system, naming the address, if it cannot be had */
export async function listen({ address, hub, limits, tls, log }: ListenOptions): Promise<Listener> {
  const isLocal = "path" in address;
  const sockets = new Set<Socket>();
  const gate = isLocal || !address.tls ? null : createGate(tls as TlsMaterial, hub, limits, log);
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    if (gate === null) attachPlain(socket, hub, limits, isLocal);
    else gate.attach(socket);
  });
  try {
    if (isLocal) await removeStale(address.path);
    await bound(server, address);
  } catch (error) {
    throw named(error as NodeJS.ErrnoException, address);
  }
  const closed = new Promise<void>((resolve) => {
    server.once("close", resolve);
  });
  return {
    address: addressText(isLocal ? address : { ...address, port: (server.address() as AddressInfo).port }),
    secure: (material) => gate?.secure(material),
    stop: () => server.close(),
    async close() {
      if (server.listening) server.close();
      const cut = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, LINGER_MS);
      await closed;
      clearTimeout(cut);
    },
  };
}

function bound(server: NetServer, address: Address): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen("path" in address ? { path: address.path } : placeOf(address), () => {
      server.removeListener("error", reject);
      // what goes wrong with one connection later ends that connection
      server.on("error", () => undefined);
      resolve();
    });
    // the socket stands there already; nobody else may use it from the first moment on
    if ("path" in address && server.listening) chmodSync(address.path, 0o600);
  });
}

function placeOf({ host, port }: HostPort): HostPort {
  return { host, port };
}

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program listens on",
  EADDRNOTAVAIL: "this machine has no address for",
  EACCES: "this user may not listen on",
  ENOENT: "no folder leads to",
  ENOTDIR: "no folder leads to",
  ENOTFOUND: "nobody knows the host of",
  EAI_AGAIN: "there is no answer yet to where the host is of",
};

/** The same error, in words, with the address. */
function named(error: NodeJS.ErrnoException, address: Address): Error {
  const reason = REASONS[error.code ?? ""];
  if (reason === undefined && !("syscall" in error)) return error;
  const said = reason === undefined ? `${addressText(address)}: ${error.message}` : `${reason} ${addressText(address)}`;
  return Object.assign(new Error(said, { cause: error }), { code: error.code });
}

/** Removes a socket file that nobody listens on. Who calls this has won the election for the path. */
async function removeStale(path: string): Promise<void> {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isSocket()) throw new Error(`${path} is not a socket: move it away`);
  const refused = await new Promise<boolean>((resolve) => {
    const socket = connect({ path });
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    // only these two mean that nobody listens: a server that is stopped, its backlog full, answers EAGAIN
    socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code === "ECONNREFUSED" || code === "ENOENT"));
  });
  if (!refused) throw new Error(`${path} is in use by another server`);
  unlinkSync(path);
}
