/** The HTTP port as a server of Node's: its bounds, who comes in, and what is answered to what is no HTTP at all. */

import type { Server as HttpServer, IncomingMessage, ServerOptions, ServerResponse } from "node:http";
import { STATUS_CODES } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { Door } from "../door.ts";
import type { Hub } from "../hub.ts";
import type { Connected } from "../metrics.ts";
import { Problem, problemHeaders, problemText, refuse, SECURITY_HEADERS } from "./problem.ts";

/** How long the head of a request may take to come, and an idle connection to ask again. */
const HEAD_MS = 10_000;
/** How long a whole request may take to come. */
const REQUEST_MS = 30_000;
/** How long a connection may be silent either way: longer than any request waits. */
const SILENT_MS = 60_000;
/** How long what was written may take to leave a connection that ends, whatever it goes on sending. */
const LINGER_MS = 1_000;
/** Requests of one connection that may wait for their answers. */
const MOST_PIPELINED = 16;

/** What node:http and node:https are told. helloMs: how long a TLS handshake may take. */
export function serverOptions(helloMs: number): ServerOptions & { readonly handshakeTimeout: number } {
  return {
    headersTimeout: HEAD_MS,
    requestTimeout: REQUEST_MS,
    keepAliveTimeout: HEAD_MS,
    connectionsCheckingInterval: 1_000,
    maxHeaderSize: 16_384,
    insecureHTTPParser: false,
    // head.ts looks at it, and says so in the form of every refusal
    requireHostHeader: false,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: 15_000,
    // of node:https
    handshakeTimeout: helloMs,
  };
}

/** What of a connection has not been answered. */
interface Pending {
  count: number;
  /** The newest request, and where its answer goes. */
  newest: readonly [IncomingMessage, ServerResponse];
}

export class Port {
  readonly #hub: Hub;
  /** Of its own, so that web clients take no room from those of the lock protocol. */
  readonly #door: Door<never>;
  readonly #handle: (incoming: IncomingMessage, outgoing: ServerResponse) => void;
  readonly #pending = new WeakMap<Duplex, Pending>();
  #draining = false;

  constructor(hub: Hub, handle: (incoming: IncomingMessage, outgoing: ServerResponse) => void) {
    this.#hub = hub;
    this.#door = new Door(hub.limits);
    this.#handle = handle;
  }

  /** Connections now, and since the start. */
  get connections(): Connected {
    return this.#door;
  }

  attach(server: HttpServer | HttpsServer): void {
    // what is beyond a count would be left out without a word, an Origin as well; maxHeaderSize bounds them
    server.maxHeadersCount = 0;
    server.setTimeout(SILENT_MS);
    server.on("connection", (socket: Socket) => this.#enter(socket));
    server.on("request", (incoming, outgoing) => this.#request(incoming, outgoing));
    // of expectations that nobody knows, as of other headers
    server.on("checkExpectation", (incoming, outgoing) => this.#request(incoming, outgoing));
    server.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#malformed(error, socket));
    // that nothing can be answered to: it waits for the handshake, which does not come
    server.on("tlsClientError", (_error, socket) => socket.destroy());
    server.on("connect", (_request, socket) => answerRaw(socket, new Problem(405, "METHOD", "method", "no proxy")));
  }

  /** Every connection ends with the answer to its next request, or to the one under way. */
  drain(): void {
    this.#draining = true;
  }

  #enter(socket: Socket): void {
    const origin = { local: false, address: socket.remoteAddress ?? "" };
    if (this.#door.full(origin) !== null) {
      this.#door.turnedAway++;
      socket.destroy();
      return;
    }
    this.#door.enter(origin, null);
    socket.once("close", () => this.#door.leave(origin, null));
  }

  #request(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const { socket } = incoming;
    const pending: Pending = this.#pending.get(socket) ?? { count: 0, newest: [incoming, outgoing] };
    pending.count++;
    pending.newest = [incoming, outgoing];
    this.#pending.set(socket, pending);
    // each request that waits listens for the end of its connection
    socket.setMaxListeners(2 * MOST_PIPELINED);
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) outgoing.setHeader(name, value as string);
    if (this.#draining) outgoing.setHeader("connection", "close");
    outgoing.once("finish", () => pending.count--);
    if (pending.count > MOST_PIPELINED) {
      // what it has asked before is still answered
      const why = `at most ${MOST_PIPELINED} requests of one connection may wait`;
      refuse(outgoing, new Problem(429, "LIMIT", "pipeline", why, { close: true }));
      return;
    }
    this.#handle(incoming, outgoing);
  }

  /** What came is no request, too much of one, or too slow. */
  #malformed(error: NodeJS.ErrnoException, socket: Duplex): void {
    const { count, newest } = this.#pending.get(socket) ?? { count: 0, newest: null };
    const wanting = count === 1 && newest !== null && isWanting(...newest) ? newest[1] : null;
    // who waits for an answer would take this one for it, unless it is about the body of that very request
    if (error.code === "ECONNRESET" || !socket.writable || (count > 0 && wanting === null)) {
      socket.destroy();
      return;
    }
    this.#hub.log("a connection spoke no HTTP", undefined, { level: "debug", code: error.code });
    const problem = MALFORMED[error.code ?? ""] ?? NO_HTTP;
    if (wanting === null) answerRaw(socket, problem);
    else refuse(wanting.setHeader("connection", "close"), problem);
  }
}

/** Is the request still to come in part, and its answer in whole? */
function isWanting(incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  return !incoming.complete && !outgoing.headersSent;
}

const NO_HTTP = new Problem(400, "INVALID", "malformed", "this is no HTTP request");
const MALFORMED: Readonly<Record<string, Problem>> = {
  HPE_HEADER_OVERFLOW: new Problem(431, "LIMIT", "header", "the head of a request has at most 16384 bytes"),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: new Problem(413, "LIMIT", "length", "the chunks of the body have too long extensions"),
  ERR_HTTP_REQUEST_TIMEOUT: new Problem(408, "TIMEOUT", "slow", "the request did not come in time"),
};

/** Answers on a connection that the framework has given up, and ends it. */
function answerRaw(socket: Duplex, problem: Problem): void {
  const text = problemText(problem);
  const headers = {
    ...SECURITY_HEADERS,
    ...problemHeaders(problem),
    "content-length": Buffer.byteLength(text),
    connection: "close",
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const cut = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(cut));
  socket.end(`HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}\r\n${lines.join("")}\r\n${text}`);
}
