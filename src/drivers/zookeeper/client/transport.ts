/** Streams to servers, as the connection needs them. */

import type { Socket } from "node:net";
import { connect, isIP } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { connect as connectTls, createSecureContext } from "node:tls";
import { FrameReader } from "./jute.ts";
import type { ServerAddress } from "./server-list.ts";

/** One stream of frames to a server. */
export interface Transport {
  write(frames: readonly Buffer[]): void;
  /** Ends it at once; closed() is not called for this. */
  close(): void;
  /** Does it keep the process alive? */
  keepAlive(on: boolean): void;
}

/** What a wire tells. After closed() it tells nothing more. */
interface TransportEvents {
  onConnected(): void;
  onFrames(frames: readonly Buffer[]): void;
  onClosed(error: Error | null): void;
}

/** Begins to connect. Never calls the events at once. */
export type Connector = (address: ServerAddress, events: TransportEvents) => Transport;

/** A list of 100,000 children has about 6 MB. */
const MAX_FRAME_BYTES = 16_777_216;

/** An address is no name to ask for, but the certificate is checked for it all the same. */
function toHostTlsOptions(host: string): ConnectionOptions {
  // whatever the environment says (NODE_TLS_REJECT_UNAUTHORIZED)
  return { ...(isIP(host) === 0 && { servername: host }), rejectUnauthorized: true };
}

/** Options of node:tls, or what gives them, asked anew for each connection: certificates are renewed. */
export type TlsOptions = ConnectionOptions | (() => ConnectionOptions);

/** @throws Error if TLS cannot use the options, or whatever gives them throws */
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
 * Dials TCP, or TLS if its options are given. The host's addresses are looked up anew each time.
 * @throws TypeError if TLS cannot use the options; what is only given later fails the connection it was given for
 */
export function createSocketConnector(tls?: TlsOptions): Connector {
  if (typeof tls === "object") validateTls(tls);
  return (address, events) => {
    // made here, so that half a frame of an earlier connection cannot be taken for the beginning of this one
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
