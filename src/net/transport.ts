/** Streams to a lock server, for the server driver. The simulator has its own implementation. */

import type { Socket } from "node:net";
import { connect } from "node:net";
import { LineDecoder } from "../protocol/framing.ts";

/** The address of a lock server. */
export type Address = { readonly path: string } | { readonly host: string; readonly port: number };

/** A stream of lines to a server. */
export interface Transport {
  write(text: string): void;
  /** Closes the stream; does not call onClosed(). */
  close(): void;
  /** Does the stream keep the process alive? False at first. */
  keepAlive(on: boolean): void;
}

/** The events of a stream. None follows onClosed(). */
export interface TransportEvents {
  /** The lines that one read has completed. */
  onLines(lines: readonly string[]): void;
  /** The stream has ended, or the connection failed. */
  onClosed(error: Error | null): void;
}

/** Starts to connect. Writes before the connection is established are sent later. Never calls the events synchronously. */
export interface Connector {
  (events: TransportEvents): Transport;
  /** The server's url for messages. */
  readonly url?: string;
}

/** The longest line from a server: the replies to all calls of one line, or a page of claims with many keys. */
const MAX_LINE_BYTES = 67_108_864;

/** Creates a connector for a Unix socket or TCP. */
export function createSocketConnector(address: Address): Connector {
  const url = formatServerUrl(address);
  const connector = (events: TransportEvents): Transport => {
    const socket = connect("path" in address ? { path: address.path } : { ...address, noDelay: true });
    return createSocketTransport(socket, events, (error) => toConnectError(error, url));
  };
  return Object.assign(connector, { url });
}

/** Formats a server's address as its url. */
export function formatServerUrl(address: Address, scheme: "holdfast" | "holdfasts" = "holdfast"): string {
  if ("path" in address) return `holdfast+unix:${address.path}`;
  const { host, port } = address;
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * Creates a transport on a socket that is connecting.
 * @param toError translates the errors of the socket
 */
export function createSocketTransport(
  socket: Socket,
  events: TransportEvents,
  toError: (error: Error) => Error,
): Transport {
  const reader = new LineDecoder(MAX_LINE_BYTES);
  let isClosed = false;
  let failure: Error | null = null;
  socket.unref();

  function finish(): void {
    if (isClosed) return;
    isClosed = true;
    socket.destroy();
    events.onClosed(failure);
  }
  socket.on("data", (chunk: Buffer) => {
    if (isClosed) return;
    try {
      const lines = reader.push(chunk);
      if (lines.length > 0) events.onLines(lines);
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
    write(text) {
      if (socket.writable) socket.write(text);
    },
    close() {
      isClosed = true;
      socket.destroySoon();
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
  ENOENT: "does not exist: no server listens on this path",
  EACCES: "cannot be accessed by this user",
  ENOTFOUND: ": host name not found",
  EAI_AGAIN: ": the host name cannot be resolved at the moment",
  ETIMEDOUT: "did not answer",
  EHOSTUNREACH: "cannot be reached from here",
  ENETUNREACH: "cannot be reached from here",
};

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
