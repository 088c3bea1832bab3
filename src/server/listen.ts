/** Listening addresses, and sockets as the streams of links. */

import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import type { AddressInfo, Server as NetServer, Socket } from "node:net";
import { connect, createServer, isIP } from "node:net";
import { shown } from "../duration.ts";
import { HELLO_BYTES, LIMITS } from "../protocol/hello.ts";
import { LineReader } from "../protocol/lines.ts";
import type { Hub } from "./hub.ts";
import type { Link } from "./link.ts";

/** A Unix socket's path may have this many bytes on every system we know. */
const MAX_PATH_BYTES = 103;
/** A client that does not read is not read from while this much waits for it. */
const MOST_UNREAD = 1_048_576;
/** How long what was written may take to leave a connection that ends. */
const LINGER_MS = 1_000;

export type Address = { readonly path: string } | { readonly host: string; readonly port: number };

/** "unix:/path" or "tcp://127.0.0.1:7420". @throws TypeError if it is neither, or not on this machine */
export function addressOf(text: unknown): Address {
  if (typeof text !== "string") throw new TypeError(`listen must be an address, not ${shown(text)}`);
  if (text.startsWith("unix:")) {
    const path = text.slice("unix:".length);
    if (!path.startsWith("/")) throw new TypeError(`listen must name a whole path, as unix:/path, not ${shown(text)}`);
    if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
      throw new TypeError(
        `listen: a socket's path has at most ${MAX_PATH_BYTES} bytes (HOLDFAST_DIR names a shorter folder)`,
      );
    }
    return { path };
  }
  const tcp = /^tcp:\/\/(\[[0-9a-f:]+\]|[^/:[\]]+):(\d{1,5})$/i.exec(text);
  const port = Number(tcp?.[2]);
  if (tcp === null || port > 65_535)
    throw new TypeError(`listen must be unix:/path or tcp://host:port, not ${shown(text)}`);
  const host = (tcp[1] as string).replace(/^\[|\]$/g, "");
  if (!isLoopback(host)) throw new TypeError(`listen: ${host} is not on this machine; only loopback is open yet`);
  return { host: host.toLowerCase() === "localhost" ? "127.0.0.1" : host, port };
}

function isLoopback(host: string): boolean {
  return host.toLowerCase() === "localhost" || (isIP(host) === 4 && host.startsWith("127.")) || host === "::1";
}

/** One listening address of a server. */
export interface Listener {
  readonly address: string;
  /** Takes no further connection. */
  stop(): void;
  /** Settles when all connections have ended; those that have not after a while are cut. */
  close(): Promise<void>;
}

/** @throws Error of the system if the address cannot be had */
export async function listen(address: Address, hub: Hub): Promise<Listener> {
  const local = "path" in address;
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    attach(socket, hub, local);
  });
  if (local) await removeStale(address.path);
  await bound(server, address);
  const closed = new Promise<void>((resolve) => {
    server.once("close", resolve);
  });
  const port = local ? 0 : (server.address() as AddressInfo).port;
  return {
    address: local
      ? `unix:${address.path}`
      : `tcp://${address.host.includes(":") ? `[${address.host}]` : address.host}:${port}`,
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
    server.listen("path" in address ? { path: address.path } : { host: address.host, port: address.port }, () => {
      server.removeListener("error", reject);
      // what goes wrong with one connection later ends that connection
      server.on("error", () => undefined);
      resolve();
    });
    // the socket stands there already; nobody else may use it from the first moment on
    if ("path" in address && server.listening) chmodSync(address.path, 0o600);
  });
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

/** Lines from the socket to a link, lines from the link to the socket. */
function attach(socket: Socket, hub: Hub, local: boolean): void {
  const reader = new LineReader(HELLO_BYTES);
  const link: Link = hub.accept(
    {
      write(text) {
        if (!socket.writable) return;
        socket.write(text);
        if (socket.writableLength > MOST_UNREAD) socket.pause();
      },
      close() {
        // what was written may still leave; a peer that does not read does not keep us
        socket.setTimeout(LINGER_MS, () => socket.destroy());
        socket.destroySoon();
      },
    },
    local,
  );
  socket.on("drain", () => socket.resume());
  socket.on("data", (chunk: Buffer) => {
    if (!link.reads) return;
    try {
      const lines = reader.push(chunk);
      if (lines.length > 0) link.lines(lines);
      reader.mostBytes = LIMITS.lineBytes;
    } catch (error) {
      link.refuse(error);
    }
  });
  const ended = (): void => link.ended();
  socket.on("end", ended);
  socket.on("close", ended);
  // "close" follows
  socket.on("error", () => undefined);
}
