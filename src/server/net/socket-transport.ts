/** A socket as the stream of a link: lines in, text out. */

import type { Socket } from "node:net";
import { LineDecoder } from "../../protocol/framing.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { ServerLimits } from "../config/limits.ts";
import type { Connection } from "../connection/connection.ts";
import type { LockService } from "../service.ts";

/** A client that does not read is not read from while this much waits for it. */
const MAX_BUFFERED_BYTES = 1_048_576;
/** How long what was written may take to leave a connection that ends. */
const LINGER_MS = 1_000;
/** The first byte of a TLS record that begins a conversation; no line of ours begins with it. */
export const TLS_HANDSHAKE = 0x16;

/** Lines from the socket to a link, lines from the link to the socket. */
export function attachPlainSocket(socket: Socket, service: LockService, limits: ServerLimits, isLocal: boolean): void {
  const connection = acceptSocket(socket, () => socket, service, isLocal);
  const feed = createLineFeeder(connection, limits);
  let isFirst = true;
  socket.on("data", (chunk: Buffer) => {
    if (isFirst && chunk[0] === TLS_HANDSHAKE) {
      connection.fail(new ProtocolError("PROTOCOL", "this port does not use TLS: connect with holdfast://"));
    }
    isFirst = false;
    feed(chunk);
  });
}

/**
 * The link of a connection that has come.
 * @param getOutput what can be written to; null: nothing yet
 */
export function acceptSocket(
  socket: Socket,
  getOutput: () => Socket | null,
  service: LockService,
  isLocal: boolean,
): Connection {
  const onSlowConsumer = (): void => {
    connection.disconnect(new ProtocolError("SLOW", "this client has not read its output for too long"));
  };
  /** Nothing is read from it until it has read; over a network it must go on reading. */
  const pauseReading = (target: Socket): void => {
    target.pause();
    if (isLocal) return;
    // of Node: time in which nothing has left, however little
    target.setTimeout(service.limits.slowConsumerMs, onSlowConsumer);
    target.once("drain", () => target.setTimeout(0, onSlowConsumer));
  };
  const connection: Connection = service.accept(
    {
      write(text) {
        const to = getOutput();
        if (to === null || !to.writable) return;
        to.write(text);
        if (to.writableLength > MAX_BUFFERED_BYTES && !to.isPaused()) pauseReading(to);
      },
      bufferedBytes: () => getOutput()?.writableLength ?? 0,
      setPaused(on) {
        const to = getOutput();
        if (to === null) return;
        if (on) to.pause();
        else if (to.writableLength > MAX_BUFFERED_BYTES) pauseReading(to);
        else to.resume();
      },
      close() {
        const to = getOutput();
        if (to === null) return void socket.destroy();
        if (to.destroyed) return;
        // what was written may still leave; a peer that does not read, or goes on writing, does not keep us
        const cut = setTimeout(() => to.destroy(), LINGER_MS);
        to.once("close", () => clearTimeout(cut));
        if (!isLocal) return to.destroySoon();
        // on a Unix socket the write of a peer fails whose other end is closed, and what it could have read is lost to it
        to.end();
        to.resume();
      },
    },
    { isLocal, address: socket.remoteAddress ?? "" },
  );
  closeWithSocket(socket, connection);
  return connection;
}

/** Ends the link with the socket, which is read from when what was written has left. */
export function closeWithSocket(socket: Socket, connection: Connection): void {
  const onClosed = (): void => connection.transportClosed();
  socket.on("drain", () => {
    if (!connection.isPaused) socket.resume();
  });
  socket.on("end", onClosed);
  socket.on("close", onClosed);
  // "close" follows
  socket.on("error", () => undefined);
}

/** Lines from chunks to the link. */
export function createLineFeeder(connection: Connection, limits: ServerLimits): (chunk: Buffer) => void {
  const decoder = new LineDecoder(limits.helloBytes);
  return (chunk) => {
    if (!connection.isReadable) return;
    try {
      const completeLines = decoder.push(chunk);
      if (completeLines.length > 0) connection.receive(completeLines);
      decoder.maxBytes = limits.lineBytes;
    } catch (error) {
      connection.fail(error);
    }
  };
}
