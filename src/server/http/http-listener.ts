/** The HTTP port: what http/ makes, on a port of its own, over TLS where other machines can reach it. */

import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { HostPort } from "../config/listen-address.ts";
import { formatHostPort, isReachableRemotely } from "../config/listen-address.ts";
import type { TlsConfig } from "../net/tls-config.ts";
import type { HttpApp } from "./app.ts";

/** How long answers under way may take when the server goes. */
const LINGER_MS = 1_000;

/** An open HTTP port. */
export interface HttpListener {
  /** "http://host:port" or "https://host:port". */
  readonly address: string;
  /** New connections get this certificate. Means nothing without TLS. */
  replaceCertificate(tlsConfig: TlsConfig): void;
  /** Nothing can be locked by it any more. It still answers, why: who asks for /ready must be told. */
  drain(): void;
  /** Settles when all connections have ended; those that have not after a while are cut. */
  close(): Promise<void>;
}

/** @throws Error of the system, naming the address, if it cannot be had */
export async function openHttpListener(address: HostPort, app: HttpApp, tls: TlsConfig | null): Promise<HttpListener> {
  const tlsConfig = tls !== null && isReachableRemotely({ ...address, tls: true }) ? tls : null;
  const server =
    tlsConfig === null
      ? createServer(app.serverOptions)
      : createSecureServer({ ...app.serverOptions, ...toTlsOptions(tlsConfig) });
  app.attach(server);
  // the server's own list has none that are still at their TLS handshake
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const message = `${formatHostPort(address)} cannot be had for HTTP: ${cause.message}`;
      reject(Object.assign(new Error(message, { cause }), { code: cause.code }));
    });
    server.listen({ host: address.host, port: address.port }, resolve);
  });
  server.removeAllListeners("error").on("error", () => undefined);
  const closed = new Promise<void>((resolve) => {
    server.once("close", resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    address: `${tlsConfig === null ? "http" : "https"}://${formatHostPort({ ...address, port })}`,
    replaceCertificate(newTlsConfig) {
      if ("setSecureContext" in server) server.setSecureContext(toTlsOptions(newTlsConfig));
    },
    drain: () => app.drain(),
    async close() {
      server.close();
      const timeout = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, LINGER_MS);
      await closed;
      clearTimeout(timeout);
      app.close();
    },
  };
}

function toTlsOptions({
  context,
  requiresClientCert,
}: TlsConfig): TlsConfig["context"] & { readonly requestCert: boolean } {
  return { ...context, requestCert: requiresClientCert };
}
