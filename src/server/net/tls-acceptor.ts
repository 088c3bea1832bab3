/**
 * TLS connections as the streams of links. The link is there from the first moment, so that the handshake takes its time
 * from that for the hello, and counts as a connection. Who begins without TLS is told so in plain text.
 */

import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createServer } from "node:tls";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { ServerLimits } from "../config/limits.ts";
import type { Logger } from "../config/logger.ts";
import type { Connection } from "../connection/connection.ts";
import type { LockService } from "../service.ts";
import { acceptSocket, closeWithSocket, createLineFeeder, TLS_HANDSHAKE } from "./socket-transport.ts";
import type { TlsConfig } from "./tls-config.ts";

/** What turns the sockets of one listening address into secured links. */
export interface TlsAcceptor {
  attach(socket: Socket): void;
  /** Handshakes that begin now use this certificate. */
  replaceCertificate(tlsConfig: TlsConfig): void;
}

/** A connection whose handshake has not ended. */
interface Handshake {
  readonly connection: Connection;
  /** What the link writes goes here from now on. */
  setOutput(socket: Socket): void;
}

export function createTlsAcceptor(
  tlsConfig: TlsConfig,
  service: LockService,
  limits: ServerLimits,
  log: Logger,
): TlsAcceptor {
  const { requiresClientCert } = tlsConfig;
  const handshakes = new Map<string, Handshake>();
  // never listens itself: it is handed sockets that have begun to speak TLS. Without a certificate a client is refused
  // below, in words; Node would only cut the connection
  const server = createServer({ ...tlsConfig.context, requestCert: requiresClientCert, rejectUnauthorized: false });
  server.on("secureConnection", (secured) => {
    const { connection, setOutput } = handshakes.get(socketKey(secured)) ?? {};
    if (connection === undefined || setOutput === undefined) return void secured.destroy();
    setOutput(secured);
    secured.on("data", createLineFeeder(connection, limits));
    closeWithSocket(secured, connection);
    if (requiresClientCert && !secured.authorized) connection.fail(clientCertificateError(secured));
  });
  server.on("tlsClientError", (error, { remoteAddress }) => {
    log("a client's TLS handshake failed", error, { level: "debug", address: remoteAddress });
  });

  function attach(socket: Socket): void {
    const key = socketKey(socket);
    let output: Socket | null = null;
    const setOutput = (to: Socket): void => {
      output = to;
    };
    const connection = acceptSocket(socket, () => output, service, false);
    handshakes.set(key, { connection, setOutput });
    socket.once("close", () => handshakes.delete(key));
    socket.once("data", (first: Buffer) => {
      if (!connection.isReadable) return;
      if (first[0] !== TLS_HANDSHAKE) {
        setOutput(socket);
        return connection.fail(new ProtocolError("PROTOCOL", "this port uses TLS: connect with holdfasts://"));
      }
      socket.pause();
      socket.unshift(first);
      server.emit("connection", socket);
    });
  }
  return { attach, replaceCertificate: ({ context }) => server.setSecureContext(context) };
}

/** Both ends of a connection: no two that live have the same. */
function socketKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

function clientCertificateError({ authorizationError }: TLSSocket): ProtocolError {
  const reason = String(authorizationError ?? "");
  const suffix = reason === "UNABLE_TO_GET_ISSUER_CERT" ? "" : ` (${reason})`;
  return new ProtocolError("AUTH", `this server requires a client certificate signed by a CA that it trusts${suffix}`);
}
