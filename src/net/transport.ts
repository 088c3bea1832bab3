/** Connections of the machine, as the driver's connection needs them; a simulator supplies its own. */

import type { Socket } from "node:net";
import { connect } from "node:net";
import { LineDecoder } from "../protocol/framing.ts";

/** Where a lock server listens. */
export type Address = { readonly path: string } | { readonly host: string; readonly port: number };

/** One stream of lines to a server. */
export interface Transport {
  write(text: string): void;
  /** Ends it; onClosed() is not called for this. */
  close(): void;
  /** Does it keep the process alive? False at first. */
  keepAlive(on: boolean): void;
}

/** What a wire tells. After onClosed() it tells nothing more. */
export interface TransportEvents {
  /** All the lines that one read has completed. */
  onLines(lines: readonly string[]): void;
  /** It has ended, or was never there. */
  onClosed(error: Error | null): void;
}

/** Begins to connect; what is written before the connection stands is sent then. Never calls the events at once. */
export interface Connector {
  (events: TransportEvents): Transport;
  /** The server as messages name it. */
  readonly url?: string;
}

/** The longest line a server may send: replies to a whole line of calls, or a page of claims with many keys. */
const MAX_LINE_BYTES = 67_108_864;

/** Dials a Unix socket or TCP. */
export function createSocketConnector(address: Address): Connector {
  const url = formatServerUrl(address);
  const connector = (events: TransportEvents): Transport => {
    const socket = connect("path" in address ? { path: address.path } : { ...address, noDelay: true });
    return createSocketTransport(socket, events, (error) => toConnectError(error, url));
  };
  return Object.assign(connector, { url });
}

/** A server's address as the url that leads there. */
export function formatServerUrl(address: Address, scheme: "holdfast" | "holdfasts" = "holdfast"): string {
  if ("path" in address) return `holdfast+unix:${address.path}`;
  const { host, port } = address;
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * A wire on a socket that is connecting.
 * @param toError what is told in place of an error of the socket's
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
  ECONNRESET: "cut the connection",
  EPIPE: "cut the connection",
  ENOENT: "is not there: no server listens on this path",
  EACCES: "may not be used by this user",
  ENOTFOUND: "is a host that nobody knows",
  EAI_AGAIN: "is a host that cannot be looked up now",
  ETIMEDOUT: "did not answer",
  EHOSTUNREACH: "cannot be reached from here",
  ENETUNREACH: "cannot be reached from here",
};

/** The system's error with the address in words: it may have none, or that of a name's last try. */
export function toConnectError(error: NodeJS.ErrnoException, serverUrl: string): Error {
  const reason = CONNECT_ERROR_REASONS[error.code ?? ""] ?? `: ${error.message}`;
  return Object.assign(
    new Error(reason.startsWith(":") ? `${serverUrl}${reason}` : `${serverUrl} ${reason}`, { cause: error }),
    {
      code: error.code,
    },
  );
}
