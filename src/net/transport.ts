/** Streams of bytes over sockets, for drivers that bring their own protocol. */

import type { Socket } from "node:net";

/** A stream of bytes to a server. */
export interface Transport {
  write(data: string | Uint8Array): void;
  /** Sends what was written, then closes the stream; does not call onClosed(). */
  close(): void;
  /** Does the stream keep the process alive? False at first. */
  keepAlive(on: boolean): void;
}

/** The events of a stream. None follows onClosed(). */
export interface TransportEvents {
  /** The connection is established. */
  onConnected?(): void;
  /** Bytes have arrived. An error that it throws ends the stream. */
  onData(chunk: Buffer): void;
  /** The stream has ended, or the connection failed. */
  onClosed(error: Error | null): void;
}

/** Makes connections to one server. */
export interface Connector {
  /** The server's url, for messages. */
  readonly url: string;
  /** Starts to connect. Writes before the connection is established are sent later. Never calls the events synchronously. */
  connect(events: TransportEvents): Transport;
}

/**
 * Creates a transport on a socket that is connecting.
 * @param toError translates the errors of the socket
 * @param connectedEvent the socket's event when the connection is established; with TLS "secureConnect"
 */
export function createSocketTransport(
  socket: Socket,
  events: TransportEvents,
  toError: (error: Error) => Error,
  connectedEvent: "connect" | "secureConnect" = "connect",
): Transport {
  let isClosed = false;
  let failure: Error | null = null;
  socket.unref();

  function finish(): void {
    if (isClosed) return;
    isClosed = true;
    socket.destroy();
    events.onClosed(failure);
  }
  socket.once(connectedEvent, () => {
    if (!isClosed) events.onConnected?.();
  });
  socket.on("data", (chunk: Buffer) => {
    if (isClosed) return;
    try {
      events.onData(chunk);
    } catch (error) {
      failure = error as Error;
      finish();
    }
  });
  socket.on("error", (error) => {
    failure = toError(error);
  });
  socket.on("end", finish);
  socket.on("close", finish);
  return {
    write(data) {
      if (socket.writable) socket.write(data);
    },
    close() {
      isClosed = true;
      // before the connection is established nothing can be sent, and waiting for it would keep the process alive
      if (socket.connecting) socket.destroy();
      else socket.destroySoon();
    },
    keepAlive(on) {
      if (on) socket.ref();
      else socket.unref();
    },
  };
}

const CONNECT_ERROR_REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "refused the connection",
  ECONNRESET: "reset the connection",
  EPIPE: "closed the connection",
  EAGAIN: "accepts no connections at the moment: too many are waiting",
  ENOENT: "does not exist: no server listens on this path",
  EACCES: "cannot be accessed by this user",
  ENOTFOUND: ": host name not found",
  EAI_AGAIN: ": the host name cannot be resolved at the moment",
  ETIMEDOUT: "did not answer",
  EHOSTUNREACH: "cannot be reached from here",
  ENETUNREACH: "cannot be reached from here",
};

/** May the same attempt to connect succeed a moment later? Permissions do not change by themselves. */
export function isTransientConnectError(error: Error): boolean {
  const { code = "" } = error as NodeJS.ErrnoException;
  return Object.hasOwn(CONNECT_ERROR_REASONS, code) && code !== "EACCES";
}

/** An error like those of toConnectError(). */
export function createConnectError(code: "ECONNRESET" | "ETIMEDOUT", message: string): Error {
  return Object.assign(new Error(message), { code });
}

/** Adds the server's url to the system's error, which may have no address, or only the last one tried for a host name. */
export function toConnectError(error: NodeJS.ErrnoException, serverUrl: string): Error {
  const reason = CONNECT_ERROR_REASONS[error.code ?? ""] ?? `: ${error.message}`;
  return Object.assign(
    new Error(reason.startsWith(":") ? `${serverUrl}${reason}` : `${serverUrl} ${reason}`, { cause: error }),
    {
      code: error.code,
    },
  );
}
