/** A socket as the stream of a link: lines in, text out, with TLS or without. */

import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { ProtocolError } from "../protocol/hello.ts";
import { LineReader } from "../protocol/lines.ts";
import type { Hub } from "./hub.ts";
import type { ServerLimits } from "./limits.ts";
import type { Link } from "./link.ts";
import type { Secret } from "./listen.ts";
import type { Log } from "./logging.ts";

/** A client that does not read is not read from while this much waits for it. */
const MOST_UNREAD = 1_048_576;
/** How long what was written may take to leave a connection that ends. */
const LINGER_MS = 1_000;
/** The first byte of a TLS record that begins a conversation; no line of ours begins with it. */
const TLS_HANDSHAKE = 0x16;

/** Lines from the socket to a link, lines from the link to the socket. */
export function attachPlain(socket: Socket, hub: Hub, limits: ServerLimits, local: boolean): void {
  const link = accepted(socket, () => socket, hub, limits, local);
  const read = reader(link, limits);
  let isFirst = true;
  socket.on("data", (chunk: Buffer) => {
    if (isFirst && chunk[0] === TLS_HANDSHAKE) {
      link.refuse(new ProtocolError("PROTOCOL", "this port speaks no TLS: its url begins with holdfast://"));
    }
    isFirst = false;
    read(chunk);
  });
}

/**
 * The same over TLS. The link is there from the first moment, so that the handshake takes its time from that for the
 * hello, and counts as a connection.
 */
export function attachSecure(socket: Socket, hub: Hub, limits: ServerLimits, secret: Secret, log: Log): void {
  let secure: TLSSocket | null = null;
  let plain = false;
  const out = (): Socket | null => (plain ? socket : secure);
  const link = accepted(socket, out, hub, limits, false);
  socket.once("data", (first: Buffer) => {
    if (!link.reads) return;
    if (first[0] !== TLS_HANDSHAKE) {
      plain = true;
      return link.refuse(new ProtocolError("PROTOCOL", "this port speaks TLS: its url begins with holdfasts://"));
    }
    socket.pause();
    socket.unshift(first);
    const { context: secureContext, mutual } = secret;
    const wrapped = new TLSSocket(socket, {
      isServer: true,
      secureContext,
      requestCert: mutual,
      // refused below, in words: Node would only cut the connection
      rejectUnauthorized: false,
    });
    wrapped.on("secure", () => {
      secure = wrapped;
      if (mutual && !wrapped.authorized) link.refuse(uncertified(wrapped));
    });
    wrapped.on("data", reader(link, limits));
    follow(wrapped, link);
    wrapped.on("error", (error) => {
      if (secure === null)
        log("a client's TLS handshake failed", error, { level: "debug", from: socket.remoteAddress });
    });
  });
}

function uncertified({ authorizationError }: TLSSocket): ProtocolError {
  const why = String(authorizationError ?? "");
  const said = why === "UNABLE_TO_GET_ISSUER_CERT" ? "" : ` (${why})`;
  return new ProtocolError("AUTH", `this server demands a client certificate that its issuers have signed${said}`);
}

/** @param out what can be written to; null: nothing yet */
function accepted(socket: Socket, out: () => Socket | null, hub: Hub, limits: ServerLimits, local: boolean): Link {
  let isSlow = false;
  const link: Link = hub.accept(
    {
      write(text) {
        const to = out();
        if (to === null || !to.writable) return;
        to.write(text);
        if (to.writableLength > MOST_UNREAD) to.pause();
        if (to.writableLength <= limits.unreadBytes || isSlow) return;
        isSlow = true;
        link.refuse(new ProtocolError("SLOW", "too much waits for a client that does not read"));
      },
      close() {
        const to = out();
        if (to === null) return void socket.destroy();
        // what was written may still leave; a peer that does not read does not keep us
        to.setTimeout(LINGER_MS, () => to.destroy());
        to.destroySoon();
      },
    },
    local,
  );
  follow(socket, link);
  return link;
}

/** Ends the link with the socket. */
function follow(socket: Socket, link: Link): void {
  const ended = (): void => link.ended();
  socket.on("drain", () => socket.resume());
  socket.on("end", ended);
  socket.on("close", ended);
  // "close" follows
  socket.on("error", () => undefined);
}

/** Lines from chunks to the link. */
function reader(link: Link, limits: ServerLimits): (chunk: Buffer) => void {
  const lines = new LineReader(limits.helloBytes);
  return (chunk) => {
    if (!link.reads) return;
    try {
      const whole = lines.push(chunk);
      if (whole.length > 0) link.lines(whole);
      lines.mostBytes = limits.lineBytes;
    } catch (error) {
      link.refuse(error);
    }
  };
}
