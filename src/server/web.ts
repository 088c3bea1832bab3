/** The HTTP port: what http/ makes, on a port of its own, over TLS where other machines can reach it. */

import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { HostPort } from "./address.ts";
import { hostPortText, isOpen } from "./address.ts";
import type { Http } from "./http/http.ts";
import type { TlsMaterial } from "./tls.ts";

/** How long answers under way may take when the server goes. */
const LINGER_MS = 1_000;

/** An open HTTP port. */
export interface Web {
  /** "http://host:port" or "https://host:port". */
  readonly address: string;
  /** New connections get this certificate. Means nothing without TLS. */
  secure(material: TlsMaterial): void;
  /** Nothing can be locked by it any more. It still answers, why: who asks for /ready must be told. */
  drain(): void;
  /** Settles when all connections have ended; those that have not after a while are cut. */
  close(): Promise<void>;
}

/** @throws Error of the system, naming the address, if it cannot be had */
export async function openWeb(place: HostPort, http: Http, tls: TlsMaterial | null): Promise<Web> {
  const secured = tls !== null && isOpen({ ...place, tls: true }) ? tls : null;
  const server =
    secured === null
      ? createServer(http.serverOptions)
      : createSecureServer({ ...http.serverOptions, ...optionsOf(secured) });
  http.attach(server);
  // the server's own list has none that are still at their TLS handshake
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const said = `${hostPortText(place)} cannot be had for HTTP: ${cause.message}`;
      reject(Object.assign(new Error(said, { cause }), { code: cause.code }));
    });
    server.listen({ host: place.host, port: place.port }, resolve);
  });
  server.removeAllListeners("error").on("error", () => undefined);
  const closed = new Promise<void>((resolve) => {
    server.once("close", resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    address: `${secured === null ? "http" : "https"}://${hostPortText({ ...place, port })}`,
    secure(material) {
      if ("setSecureContext" in server) server.setSecureContext(optionsOf(material));
    },
    drain: () => http.drain(),
    async close() {
      server.close();
      const cut = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, LINGER_MS);
      await closed;
      clearTimeout(cut);
      http.close();
    },
  };
}

function optionsOf({ context, mutual }: TlsMaterial): TlsMaterial["context"] & { readonly requestCert: boolean } {
  return { ...context, requestCert: mutual };
}
