/**
 * TLS connections as transports. The connection exists from the first moment, so the TLS handshake counts against the
 * hello timeout and the connection limits. A client that does not begin with TLS gets an error in plain text.
 */

import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createServer } from "node:tls";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { Connection } from "../connection/connection.ts";
import type { LockService } from "../service.ts";
import { acceptSocket, closeWithSocket, createLineFeeder, TLS_HANDSHAKE } from "./socket-transport.ts";
import type { TlsConfig } from "./tls-config.ts";

/** Turns the sockets of one listening address into TLS connections. */
export interface TlsAcceptor {
  attach(socket: Socket): void;
  /** New handshakes use this certificate. */
  replaceCertificate(tlsConfig: TlsConfig): void;
}

/** A connection during its TLS handshake. */
interface Handshake {
  readonly connection: Connection;
  /** The socket for the connection's output from now on. */
  setOutput(socket: Socket): void;
}

export function createTlsAcceptor(tlsConfig: TlsConfig, service: LockService): TlsAcceptor {
  const { requiresClientCert } = tlsConfig;
  const handshakes = new Map<string, Handshake>();
  // It does not listen itself: it receives sockets that have begun a TLS handshake. A client without a certificate is
  // refused below with a message, where Node would only close the connection.
  const server = createServer({ ...tlsConfig.context, requestCert: requiresClientCert, rejectUnauthorized: false });
  server.on("secureConnection", (secured) => {
    const { connection, setOutput } = handshakes.get(socketKey(secured)) ?? {};
    if (connection === undefined || setOutput === undefined) return void secured.destroy();
    setOutput(secured);
    secured.on("data", createLineFeeder(connection, service.limits));
    closeWithSocket(secured, connection);
    if (requiresClientCert && !secured.authorized) connection.fail(clientCertificateError(secured));
  });
  server.on("tlsClientError", (error, { remoteAddress }) => {
    service.log("a client's TLS handshake failed", error, { level: "debug", address: remoteAddress });
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

/** Identifies a connection by both its ends: unique among open connections. */
function socketKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

function clientCertificateError({ authorizationError }: TLSSocket): ProtocolError {
  const reason = String(authorizationError ?? "");
  const suffix = reason === "UNABLE_TO_GET_ISSUER_CERT" ? "" : ` (${reason})`;
  return new ProtocolError("AUTH", `this server requires a client certificate signed by a CA that it trusts${suffix}`);
}
