/** Streams of frames to servers, over TCP or TLS. */

import type { Socket } from "node:net";
import { connect, isIP } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { connect as connectTls, createSecureContext } from "node:tls";
import { FrameReader } from "./jute.ts";
import type { ServerAddress } from "./server-list.ts";

/** A stream of frames to one server. */
export interface Transport {
  write(frames: readonly Buffer[]): void;
  /** Closes the stream at once; onClosed() is not called for this. */
  close(): void;
  /** Sets whether it keeps the process alive. */
  keepAlive(on: boolean): void;
}

/** Events of a transport. There are none after onClosed(). */
interface TransportEvents {
  onConnected(): void;
  onFrames(frames: readonly Buffer[]): void;
  onClosed(error: Error | null): void;
}

/** Begins to connect. Never calls the events synchronously. */
export type Connector = (address: ServerAddress, events: TransportEvents) => Transport;

/** A list of 100,000 children has about 6 MB. */
const MAX_FRAME_BYTES = 16_777_216;

/** Server name indication allows only host names; for an IP address the certificate is still verified. */
function toHostTlsOptions(host: string): ConnectionOptions {
  // explicit, so that NODE_TLS_REJECT_UNAUTHORIZED in the environment cannot disable it
  return { ...(isIP(host) === 0 && { servername: host }), rejectUnauthorized: true };
}

/**
 * Options of node:tls, or a function that is called for them before each connection, so that certificates can be
 * renewed.
 */
export type TlsOptions = ConnectionOptions | (() => ConnectionOptions);

/** @throws Error if TLS cannot use the options, or the function for them throws */
function openSocket({ host, port }: ServerAddress, tls: TlsOptions | undefined): Socket {
  if (tls === undefined) return connect({ host, port, noDelay: true });
  const options = typeof tls === "function" ? tls() : tls;
  return connectTls({ host, port, ...toHostTlsOptions(host), ...options }).setNoDelay(true);
}

const CLOSED_TRANSPORT: Transport = { write: () => undefined, close: () => undefined, keepAlive: () => undefined };

function validateTls(options: ConnectionOptions): void {
  try {
    createSecureContext(options);
  } catch (cause) {
    throw new TypeError(`tls cannot be used: ${(cause as Error).message}`, { cause });
  }
}

/**
 * Connects over TCP, or over TLS if it has options. The host name is resolved for each connection.
 * @throws TypeError if TLS cannot use the options; invalid options from a function fail their connection instead
 */
export function createSocketConnector(tls?: TlsOptions): Connector {
  if (typeof tls === "object") validateTls(tls);
  return (address, events) => {
    // one per connection: half a frame of an earlier connection must not be read as the beginning of this one
    const reader = new FrameReader(MAX_FRAME_BYTES);
    let isClosed = false;
    let failure: Error | null = null;
    let socket: Socket;
    try {
      socket = openSocket(address, tls);
    } catch (error) {
      const closed = setImmediate(() => events.onClosed(error as Error));
      return { ...CLOSED_TRANSPORT, close: () => clearImmediate(closed) };
    }
    socket.unref();
    const finish = (): void => {
      if (isClosed) return;
      isClosed = true;
      socket.destroy();
      events.onClosed(failure);
    };
    socket.once(tls === undefined ? "connect" : "secureConnect", () => {
      if (!isClosed) events.onConnected();
    });
    socket.on("data", (chunk: Buffer) => {
      if (isClosed) return;
      try {
        const frames = reader.push(chunk);
        events.onFrames(frames);
      } catch (error) {
        failure = error as Error;
        finish();
      }
    });
    socket.on("error", (error) => {
      failure = error;
    });
    socket.on("end", finish);
    socket.on("close", finish);
    return {
      write(frames) {
        if (!socket.writable) return;
        socket.cork();
        for (const frame of frames) socket.write(frame);
        socket.uncork();
      },
      close() {
        isClosed = true;
        socket.destroy();
      },
      keepAlive(on) {
        if (on) socket.ref();
        else socket.unref();
      },
    };
  };
}
