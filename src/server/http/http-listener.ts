/** Opens the HTTP port, with TLS if other machines can reach it. */

import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { HostPort } from "../config/listen-address.ts";
import { formatHostPort, isReachableRemotely } from "../config/listen-address.ts";
import type { TlsConfig } from "../net/tls-config.ts";
import type { HttpApp } from "./app.ts";

/** How long responses in progress may take when the server stops. */
const LINGER_MS = 1_000;

/** An open HTTP port. */
export interface HttpListener {
  /** "http://host:port" or "https://host:port". */
  readonly address: string;
  /** Sets the certificate of new connections. No effect without TLS. */
  replaceCertificate(tlsConfig: TlsConfig): void;
  /** Refuses lock requests from now on. The port still answers, so that /ready can report the reason. */
  drain(): void;
  /** Settles when all connections have ended. Those that last longer than LINGER_MS are destroyed. */
  close(): Promise<void>;
}

/** @throws the system's error, with the address, if the server cannot listen on it */
export async function openHttpListener(address: HostPort, app: HttpApp, tls: TlsConfig | null): Promise<HttpListener> {
  const tlsConfig = tls !== null && isReachableRemotely({ ...address, tls: true }) ? tls : null;
  const server =
    tlsConfig === null
      ? createServer(app.serverOptions)
      : createSecureServer({ ...app.serverOptions, ...toTlsOptions(tlsConfig) });
  app.attach(server);
  // the server's own list of connections lacks those in their TLS handshake
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const message = `cannot listen on ${formatHostPort(address)} for HTTP: ${cause.message}`;
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
