/** Streams to servers, as the connection needs them. */

import type { Socket } from "node:net";
import { connect, isIP } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { connect as connectTls, createSecureContext } from "node:tls";
import { FrameReader } from "./jute.ts";
import type { ServerAddress } from "./servers.ts";

/** One stream of frames to a server. */
export interface Wire {
  write(frames: readonly Buffer[]): void;
  /** Ends it at once; closed() is not called for this. */
  close(): void;
  /** Does it keep the process alive? */
  keepAlive(on: boolean): void;
}

/** What a wire tells. After closed() it tells nothing more. */
interface WireEvents {
  connected(): void;
  frames(frames: readonly Buffer[]): void;
  closed(error: Error | null): void;
}

/** Begins to connect. Never calls the events at once. */
export type Dial = (address: ServerAddress, events: WireEvents) => Wire;

/** A list of 100,000 children has about 6 MB. */
const MOST_BYTES = 16_777_216;

/** An address is no name to ask for, but the certificate is checked for it all the same. */
function secured(host: string): ConnectionOptions {
  // whatever the environment says (NODE_TLS_REJECT_UNAUTHORIZED)
  return { ...(isIP(host) === 0 && { servername: host }), rejectUnauthorized: true };
}

/** Options of node:tls, or what gives them, asked anew for each connection: certificates are renewed. */
export type TlsOptions = ConnectionOptions | (() => ConnectionOptions);

/** @throws Error if TLS cannot use the options, or whatever gives them throws */
function socketTo({ host, port }: ServerAddress, tls: TlsOptions | undefined): Socket {
  if (tls === undefined) return connect({ host, port, noDelay: true });
  const options = typeof tls === "function" ? tls() : tls;
  return connectTls({ host, port, ...secured(host), ...options }).setNoDelay(true);
}

const NO_WIRE: Wire = { write: () => undefined, close: () => undefined, keepAlive: () => undefined };

function checkedTls(options: ConnectionOptions): void {
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
export function netDial(tls?: TlsOptions): Dial {
  if (typeof tls === "object") checkedTls(tls);
  return (address, events) => {
    // made here, so that half a frame of an earlier connection cannot be taken for the beginning of this one
    const reader = new FrameReader(MOST_BYTES);
    let over = false;
    let failure: Error | null = null;
    let socket: Socket;
    try {
      socket = socketTo(address, tls);
    } catch (error) {
      const closed = setImmediate(() => events.closed(error as Error));
      return { ...NO_WIRE, close: () => clearImmediate(closed) };
    }
    socket.unref();
    const end = (): void => {
      if (over) return;
      over = true;
      socket.destroy();
      events.closed(failure);
    };
    socket.once(tls === undefined ? "connect" : "secureConnect", () => {
      if (!over) events.connected();
    });
    socket.on("data", (chunk: Buffer) => {
      if (over) return;
      try {
        const frames = reader.push(chunk);
        events.frames(frames);
      } catch (error) {
        failure = error as Error;
        end();
      }
    });
    socket.on("error", (error) => {
      failure = error;
    });
    socket.on("end", end);
    socket.on("close", end);
    return {
      write(frames) {
        if (!socket.writable) return;
        socket.cork();
        for (const frame of frames) socket.write(frame);
        socket.uncork();
      },
      close() {
        over = true;
        socket.destroy();
      },
      keepAlive(on) {
        if (on) socket.ref();
        else socket.unref();
      },
    };
  };
}
