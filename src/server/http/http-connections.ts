/** The HTTP port as a server of Node's: its bounds, who comes in, and what is answered to what is no HTTP at all. */

import type { Server as HttpServer, IncomingMessage, ServerOptions, ServerResponse } from "node:http";
import { STATUS_CODES } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ConnectionLimiter } from "../connection/connection-limiter.ts";
import type { ConnectionCounts } from "../events/metrics.ts";
import type { LockService } from "../service.ts";
import { formatProblem, formatProblemHeaders, Problem, SECURITY_HEADERS, sendProblem } from "./problem.ts";

/** How long the head of a request may take to come, and an idle connection to ask again. */
const HEADERS_TIMEOUT_MS = 10_000;
/** How long a whole request may take to come. */
const REQUEST_TIMEOUT_MS = 30_000;
/** How long a connection may be silent either way: longer than any request waits. */
const IDLE_TIMEOUT_MS = 60_000;
/** How long what was written may take to leave a connection that ends, whatever it goes on sending. */
const LINGER_MS = 1_000;
/** Requests of one connection that may wait for their answers. */
const MAX_PIPELINED = 16;

/** What node:http and node:https are told. helloMs: how long a TLS handshake may take. */
export function createServerOptions(helloMs: number): ServerOptions & { readonly handshakeTimeout: number } {
  return {
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: HEADERS_TIMEOUT_MS,
    connectionsCheckingInterval: 1_000,
    maxHeaderSize: 16_384,
    insecureHTTPParser: false,
    // origin-check.ts looks at it, and says so in the form of every refusal
    requireHostHeader: false,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: 15_000,
    // of node:https
    handshakeTimeout: helloMs,
  };
}

/** What of a connection has not been answered. */
interface PendingRequests {
  count: number;
  /** The newest request, and where its answer goes. */
  latest: readonly [IncomingMessage, ServerResponse];
}

export class HttpConnections {
  readonly #service: LockService;
  /** Of its own, so that web clients take no room from those of the lock protocol. */
  readonly #limiter: ConnectionLimiter<never>;
  readonly #handleRequest: (incoming: IncomingMessage, outgoing: ServerResponse) => void;
  readonly #pending = new WeakMap<Duplex, PendingRequests>();
  #isDraining = false;

  constructor(service: LockService, handleRequest: (incoming: IncomingMessage, outgoing: ServerResponse) => void) {
    this.#service = service;
    this.#limiter = new ConnectionLimiter(service.limits);
    this.#handleRequest = handleRequest;
  }

  /** Connections now, and since the start. */
  get counts(): ConnectionCounts {
    return this.#limiter;
  }

  attach(server: HttpServer | HttpsServer): void {
    // what is beyond a count would be left out without a word, an Origin as well; maxHeaderSize bounds them
    server.maxHeadersCount = 0;
    server.setTimeout(IDLE_TIMEOUT_MS);
    server.on("connection", (socket: Socket) => this.#acceptSocket(socket));
    server.on("request", (incoming, outgoing) => this.#onRequest(incoming, outgoing));
    // of expectations that nobody knows, as of other headers
    server.on("checkExpectation", (incoming, outgoing) => this.#onRequest(incoming, outgoing));
    server.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#onMalformed(error, socket));
    // that nothing can be answered to: it waits for the handshake, which does not come
    server.on("tlsClientError", (_error, socket) => socket.destroy());
    server.on("connect", (_request, socket) => sendRaw(socket, new Problem(405, "METHOD", "method", "no proxy")));
  }

  /** Every connection ends with the answer to its next request, or to the one under way. */
  drain(): void {
    this.#isDraining = true;
  }

  #acceptSocket(socket: Socket): void {
    const peer = { isLocal: false, address: socket.remoteAddress ?? "" };
    if (this.#limiter.check(peer) !== null) {
      this.#limiter.rejected++;
      socket.destroy();
      return;
    }
    this.#limiter.add(peer, null);
    socket.once("close", () => this.#limiter.remove(peer, null));
  }

  #onRequest(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const { socket } = incoming;
    const pending: PendingRequests = this.#pending.get(socket) ?? { count: 0, latest: [incoming, outgoing] };
    pending.count++;
    pending.latest = [incoming, outgoing];
    this.#pending.set(socket, pending);
    // each request that waits listens for the end of its connection
    socket.setMaxListeners(2 * MAX_PIPELINED);
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) outgoing.setHeader(name, value as string);
    if (this.#isDraining) outgoing.setHeader("connection", "close");
    outgoing.once("finish", () => pending.count--);
    if (pending.count > MAX_PIPELINED) {
      // what it has asked before is still answered
      const message = `at most ${MAX_PIPELINED} requests of one connection may wait`;
      sendProblem(outgoing, new Problem(429, "LIMIT", "pipeline", message, { close: true }));
      return;
    }
    this.#handleRequest(incoming, outgoing);
  }

  /** What came is no request, too much of one, or too slow. */
  #onMalformed(error: NodeJS.ErrnoException, socket: Duplex): void {
    const { count, latest } = this.#pending.get(socket) ?? { count: 0, latest: null };
    const awaitingResponse = count === 1 && latest !== null && isAwaitingBody(...latest) ? latest[1] : null;
    // who waits for an answer would take this one for it, unless it is about the body of that very request
    if (error.code === "ECONNRESET" || !socket.writable || (count > 0 && awaitingResponse === null)) {
      socket.destroy();
      return;
    }
    this.#service.log("a connection spoke no HTTP", undefined, { level: "debug", code: error.code });
    const problem = MALFORMED_PROBLEMS[error.code ?? ""] ?? NOT_HTTP;
    if (awaitingResponse === null) sendRaw(socket, problem);
    else sendProblem(awaitingResponse.setHeader("connection", "close"), problem);
  }
}

/** Is the request still to come in part, and its answer in whole? */
function isAwaitingBody(incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  return !incoming.complete && !outgoing.headersSent;
}

const NOT_HTTP = new Problem(400, "INVALID", "malformed", "this is no HTTP request");
const MALFORMED_PROBLEMS: Readonly<Record<string, Problem>> = {
  HPE_HEADER_OVERFLOW: new Problem(431, "LIMIT", "header", "the head of a request has at most 16384 bytes"),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: new Problem(413, "LIMIT", "length", "the chunks of the body have too long extensions"),
  ERR_HTTP_REQUEST_TIMEOUT: new Problem(408, "TIMEOUT", "slow", "the request did not come in time"),
};

/** Answers on a connection that the framework has given up, and ends it. */
function sendRaw(socket: Duplex, problem: Problem): void {
  const text = formatProblem(problem);
  const headers = {
    ...SECURITY_HEADERS,
    ...formatProblemHeaders(problem),
    "content-length": Buffer.byteLength(text),
    connection: "close",
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const timeout = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timeout));
  socket.end(`HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}\r\n${lines.join("")}\r\n${text}`);
}
