/** A socket as the transport of a connection: lines in, text out. */

import type { Socket } from "node:net";
import { MAX_HELLO_BYTES, ProtocolError } from "../../protocol/handshake.ts";
import { LineDecoder } from "../../protocol/lines.ts";
import type { Connection } from "../connection/connection.ts";
import type { ServerLimits } from "../limits.ts";
import type { LockService } from "../service.ts";

/** A client that does not read is not read from while more than this is unsent. */
const MAX_BUFFERED_BYTES = 1_048_576;
/**
 * How long a client over the network may read nothing while more than MAX_BUFFERED_BYTES are unsent: as long as a
 * client may be silent before it counts as gone.
 */
const UNREAD_TIMEOUT_MS = 30_000;
/** How long pending output of a closing connection may take. */
const LINGER_MS = 1_000;
/** The first byte of a TLS handshake record; no line of the protocol begins with it. */
export const TLS_HANDSHAKE = 0x16;

/** Passes lines from the socket to a connection, and its output to the socket. unreadTimeoutMs: for tests. */
export function attachPlainSocket(
  socket: Socket,
  service: LockService,
  isLocal: boolean,
  unreadTimeoutMs: number = UNREAD_TIMEOUT_MS,
): void {
  const connection = acceptSocket(socket, () => socket, service, isLocal, unreadTimeoutMs);
  const feed = createLineFeeder(connection, service.limits);
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
 * Creates the connection for an accepted socket.
 * @param getOutput the socket to write to; null: none yet
 */
export function acceptSocket(
  socket: Socket,
  getOutput: () => Socket | null,
  service: LockService,
  isLocal: boolean,
  unreadTimeoutMs: number = UNREAD_TIMEOUT_MS,
): Connection {
  const onSlowConsumer = (): void => {
    connection.disconnect(new ProtocolError("SLOW", "this client has not read its output for too long"));
  };
  /** Pauses input until the client reads. Over a network the client must keep reading. */
  const pauseReading = (target: Socket): void => {
    target.pause();
    if (isLocal) return;
    // Node's idle timeout: fires when no output was sent for this long
    target.setTimeout(unreadTimeoutMs, onSlowConsumer);
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
        // pending output may still be sent; a peer that does not read, or keeps writing, must not hold up the close
        const cut = setTimeout(() => to.destroy(), LINGER_MS);
        to.once("close", () => clearTimeout(cut));
        if (!isLocal) return to.destroySoon();
        // on a Unix socket a peer's write fails once the other end is closed, and the peer would lose unread output
        to.end();
        to.resume();
      },
    },
    { isLocal, address: socket.remoteAddress ?? "" },
  );
  closeWithSocket(socket, connection);
  return connection;
}

/** Closes the connection with the socket. The socket is read again once pending output was sent. */
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

/** Passes chunks of input to the connection as lines. */
export function createLineFeeder(connection: Connection, { lineBytes }: ServerLimits): (chunk: Buffer) => void {
  const decoder = new LineDecoder(MAX_HELLO_BYTES);
  return (chunk) => {
    if (!connection.isReadable) return;
    try {
      const completeLines = decoder.push(chunk);
      if (completeLines.length > 0) connection.receive(completeLines);
      decoder.maxBytes = lineBytes;
    } catch (error) {
      connection.fail(error);
    }
  };
}
