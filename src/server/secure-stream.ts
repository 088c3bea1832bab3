/**
 * TLS connections as the streams of links. The link is there from the first moment, so that the handshake takes its time
 * from that for the hello, and counts as a connection. Who begins without TLS is told so in plain text.
 */

import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createServer } from "node:tls";
import { ProtocolError } from "../protocol/hello.ts";
import type { Hub } from "./hub.ts";
import type { ServerLimits } from "./limits.ts";
import type { Link } from "./link.ts";
import type { Log } from "./logging.ts";
import { accepted, follow, reader, TLS_HANDSHAKE } from "./stream.ts";
import type { TlsMaterial } from "./tls.ts";

/** What turns the sockets of one listening address into secured links. */
export interface Gate {
  attach(socket: Socket): void;
  /** Handshakes that begin now use this certificate. */
  secure(material: TlsMaterial): void;
}

/** A connection whose handshake has not ended. */
interface Pending {
  readonly link: Link;
  /** What the link writes goes here from now on. */
  open(socket: Socket): void;
}

export function createGate(material: TlsMaterial, hub: Hub, limits: ServerLimits, log: Log): Gate {
  const { mutual } = material;
  const pending = new Map<string, Pending>();
  // never listens itself: it is handed sockets that have begun to speak TLS. Without a certificate a client is refused
  // below, in words; Node would only cut the connection
  const server = createServer({ ...material.context, requestCert: mutual, rejectUnauthorized: false });
  server.on("secureConnection", (secured) => {
    const { link, open } = pending.get(nameOf(secured)) ?? {};
    if (link === undefined || open === undefined) return void secured.destroy();
    open(secured);
    secured.on("data", reader(link, limits));
    follow(secured, link);
    if (mutual && !secured.authorized) link.refuse(uncertified(secured));
  });
  server.on("tlsClientError", (error, { remoteAddress }) => {
    log("a client's TLS handshake failed", error, { level: "debug", address: remoteAddress });
  });

  function attach(socket: Socket): void {
    const name = nameOf(socket);
    let out: Socket | null = null;
    const open = (to: Socket): void => {
      out = to;
    };
    const link = accepted(socket, () => out, hub, false);
    pending.set(name, { link, open });
    socket.once("close", () => pending.delete(name));
    socket.once("data", (first: Buffer) => {
      if (!link.reads) return;
      if (first[0] !== TLS_HANDSHAKE) {
        open(socket);
        return link.refuse(new ProtocolError("PROTOCOL", "this port speaks TLS: its url begins with holdfasts://"));
      }
      socket.pause();
      socket.unshift(first);
      server.emit("connection", socket);
    });
  }
  return { attach, secure: ({ context }) => server.setSecureContext(context) };
}

/** Both ends of a connection: no two that live have the same. */
function nameOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

function uncertified({ authorizationError }: TLSSocket): ProtocolError {
  const why = String(authorizationError ?? "");
  const said = why === "UNABLE_TO_GET_ISSUER_CERT" ? "" : ` (${why})`;
  return new ProtocolError("AUTH", `this server demands a client certificate that its issuers have signed${said}`);
}
