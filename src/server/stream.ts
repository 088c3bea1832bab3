/** A socket as the stream of a link: lines in, text out. */

import type { Socket } from "node:net";
import { ProtocolError } from "../protocol/hello.ts";
import { LineReader } from "../protocol/lines.ts";
import type { Hub } from "./hub.ts";
import type { ServerLimits } from "./limits.ts";
import type { Link } from "./link.ts";

/** A client that does not read is not read from while this much waits for it. */
const MOST_UNREAD = 1_048_576;
/** How long what was written may take to leave a connection that ends. */
const LINGER_MS = 1_000;
/** The first byte of a TLS record that begins a conversation; no line of ours begins with it. */
export const TLS_HANDSHAKE = 0x16;

/** Lines from the socket to a link, lines from the link to the socket. */
export function attachPlain(socket: Socket, hub: Hub, limits: ServerLimits, local: boolean): void {
  const link = accepted(socket, () => socket, hub, local);
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
 * The link of a connection that has come.
 * @param out what can be written to; null: nothing yet
 */
export function accepted(socket: Socket, out: () => Socket | null, hub: Hub, local: boolean): Link {
  const deaf = (): void => {
    link.sever(new ProtocolError("SLOW", "what waits for this client has not been read for too long"));
  };
  /** Nothing is read from it until it has read; over a network it must go on reading. */
  const holdBack = (to: Socket): void => {
    to.pause();
    if (local) return;
    // of Node: time in which nothing has left, however little
    to.setTimeout(hub.limits.unreadMs, deaf);
    to.once("drain", () => to.setTimeout(0, deaf));
  };
  const link: Link = hub.accept(
    {
      write(text) {
        const to = out();
        if (to === null || !to.writable) return;
        to.write(text);
        if (to.writableLength > MOST_UNREAD && !to.isPaused()) holdBack(to);
      },
      unread: () => out()?.writableLength ?? 0,
      hold(on) {
        const to = out();
        if (to === null) return;
        if (on) to.pause();
        else if (to.writableLength > MOST_UNREAD) holdBack(to);
        else to.resume();
      },
      close() {
        const to = out();
        if (to === null) return void socket.destroy();
        if (to.destroyed) return;
        // what was written may still leave; a peer that does not read, or goes on writing, does not keep us
        const cut = setTimeout(() => to.destroy(), LINGER_MS);
        to.once("close", () => clearTimeout(cut));
        if (!local) return to.destroySoon();
        // on a Unix socket the write of a peer fails whose other end is closed, and what it could have read is lost to it
        to.end();
        to.resume();
      },
    },
    { local, address: socket.remoteAddress ?? "" },
  );
  follow(socket, link);
  return link;
}

/** Ends the link with the socket, which is read from when what was written has left. */
export function follow(socket: Socket, link: Link): void {
  const ended = (): void => link.ended();
  socket.on("drain", () => {
    if (!link.isHeld) socket.resume();
  });
  socket.on("end", ended);
  socket.on("close", ended);
  // "close" follows
  socket.on("error", () => undefined);
}

/** Lines from chunks to the link. */
export function reader(link: Link, limits: ServerLimits): (chunk: Buffer) => void {
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
