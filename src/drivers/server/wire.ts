/** Connections of the machine, as the driver's connection needs them; a simulator supplies its own. */

import type { Socket } from "node:net";
import { connect } from "node:net";
import { LineReader } from "../../protocol/lines.ts";

/** Where a lock server listens. */
export type Address = { readonly path: string } | { readonly host: string; readonly port: number };

/** One stream of lines to a server. */
export interface Wire {
  write(text: string): void;
  /** Ends it; closed() is not called for this. */
  close(): void;
  /** Does it keep the process alive? False at first. */
  keepAlive(on: boolean): void;
}

/** What a wire tells. After closed() it tells nothing more. */
export interface WireEvents {
  /** All the lines that one read has completed. */
  lines(lines: readonly string[]): void;
  /** It has ended, or was never there. */
  closed(error: Error | null): void;
}

/** Begins to connect; what is written before the connection stands is sent then. Never calls the events at once. */
export interface Dial {
  (events: WireEvents): Wire;
  /** The server as messages name it. */
  readonly to?: string;
}

/** The longest line a server may send: replies to a whole line of calls, or a page of claims with many keys. */
const MOST_BYTES = 67_108_864;

/** Dials a Unix socket or TCP. */
export function netDial(address: Address): Dial {
  const to = urlOf(address);
  const dial = (events: WireEvents): Wire => {
    const socket = connect("path" in address ? { path: address.path } : { ...address, noDelay: true });
    return wireOn(socket, events, (error) => unreached(error, to));
  };
  return Object.assign(dial, { to });
}

/** A server's address as the url that leads there. */
export function urlOf(address: Address, scheme: "holdfast" | "holdfasts" = "holdfast"): string {
  if ("path" in address) return `holdfast+unix:${address.path}`;
  const { host, port } = address;
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * A wire on a socket that is connecting.
 * @param explained what is told in place of an error of the socket's
 */
export function wireOn(socket: Socket, events: WireEvents, explained: (error: Error) => Error): Wire {
  const reader = new LineReader(MOST_BYTES);
  let over = false;
  let failure: Error | null = null;
  socket.unref();

  function end(): void {
    if (over) return;
    over = true;
    socket.destroy();
    events.closed(failure);
  }
  socket.on("data", (chunk: Buffer) => {
    if (over) return;
    try {
      const lines = reader.push(chunk);
      if (lines.length > 0) events.lines(lines);
    } catch (error) {
      failure = error as Error;
      end();
    }
  });
  socket.on("error", (error) => {
    failure = explained(error);
  });
  socket.on("end", end);
  socket.on("close", end);
  return {
    write(text) {
      if (socket.writable) socket.write(text);
    },
    close() {
      over = true;
      socket.destroySoon();
    },
    keepAlive(on) {
      if (on) socket.ref();
      else socket.unref();
    },
  };
}

const REASONS: Readonly<Record<string, string>> = {
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
export function unreached(error: NodeJS.ErrnoException, name: string): Error {
  const said = REASONS[error.code ?? ""] ?? `: ${error.message}`;
  return Object.assign(new Error(said.startsWith(":") ? `${name}${said}` : `${name} ${said}`, { cause: error }), {
    code: error.code,
  });
}
