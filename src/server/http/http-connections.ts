/** The connections of the HTTP port: limits, admission, and responses to malformed input. */

import type { Server as HttpServer, IncomingMessage, ServerOptions, ServerResponse } from "node:http";
import { STATUS_CODES } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ConnectionLimiter } from "../connection/connection-limiter.ts";
import type { ConnectionCounts } from "../events/metrics.ts";
import type { LockService } from "../service.ts";
import { formatProblem, formatProblemHeaders, Problem, SECURITY_HEADERS, sendProblem } from "./problem.ts";

/** The time for the head of a request to arrive, and for an idle connection to send its next request. */
const HEADERS_TIMEOUT_MS = 10_000;
/** The time for a complete request to arrive. */
const REQUEST_TIMEOUT_MS = 30_000;
/** A connection without traffic ends after this time, which is longer than any request waits. */
const IDLE_TIMEOUT_MS = 60_000;
/** The time to send the last response on a connection that ends. After that it is destroyed, even if it still sends. */
const LINGER_MS = 1_000;
/** The most requests in progress on one connection. */
const MAX_PIPELINED = 16;

/** The options of node:http and node:https. `helloMs` is the longest TLS handshake. */
export function createServerOptions(helloMs: number): ServerOptions & { readonly handshakeTimeout: number } {
  return {
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: HEADERS_TIMEOUT_MS,
    connectionsCheckingInterval: 1_000,
    maxHeaderSize: 16_384,
    insecureHTTPParser: false,
    // origin-check.ts checks the header, and responds with a Problem
    requireHostHeader: false,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: 15_000,
    // for node:https only
    handshakeTimeout: helloMs,
  };
}

/** The requests of a connection without a complete response. */
interface PendingRequests {
  count: number;
  /** The newest request and its response. */
  latest: readonly [IncomingMessage, ServerResponse];
}

export class HttpConnections {
  readonly #service: LockService;
  /** A separate limiter, so that HTTP clients do not use up the connections of the lock protocol. */
  readonly #limiter: ConnectionLimiter<never>;
  readonly #handleRequest: (incoming: IncomingMessage, outgoing: ServerResponse) => void;
  readonly #pending = new WeakMap<Duplex, PendingRequests>();
  #isDraining = false;

  constructor(service: LockService, handleRequest: (incoming: IncomingMessage, outgoing: ServerResponse) => void) {
    this.#service = service;
    this.#limiter = new ConnectionLimiter(service.limits);
    this.#handleRequest = handleRequest;
  }

  /** The numbers of connections now and since the start. */
  get counts(): ConnectionCounts {
    return this.#limiter;
  }

  attach(server: HttpServer | HttpsServer): void {
    // with a limit Node silently drops further headers, for example Origin; maxHeaderSize bounds them already
    server.maxHeadersCount = 0;
    server.setTimeout(IDLE_TIMEOUT_MS);
    server.on("connection", (socket: Socket) => this.#acceptSocket(socket));
    server.on("request", (incoming, outgoing) => this.#onRequest(incoming, outgoing));
    // unknown expectations are ignored, like other unknown headers
    server.on("checkExpectation", (incoming, outgoing) => this.#onRequest(incoming, outgoing));
    server.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#onMalformed(error, socket));
    // no response is possible without a TLS handshake
    server.on("tlsClientError", (_error, socket) => socket.destroy());
    server.on("connect", (_request, socket) =>
      sendRaw(socket, new Problem("METHOD", "method", "CONNECT is not supported")),
    );
  }

  /** From now on each connection ends with its next response. */
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
    // each waiting request adds a "close" listener; without this Node warns of a leak
    socket.setMaxListeners(2 * MAX_PIPELINED);
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) outgoing.setHeader(name, value as string);
    if (this.#isDraining) outgoing.setHeader("connection", "close");
    outgoing.once("finish", () => pending.count--);
    if (pending.count > MAX_PIPELINED) {
      // the earlier requests are still answered
      const message = `a connection may have at most ${MAX_PIPELINED} requests in progress`;
      sendProblem(outgoing, new Problem("LIMIT", "pipeline", message, { close: true }));
      return;
    }
    this.#handleRequest(incoming, outgoing);
  }

  /** Handles input that is not a valid request, too large, or too slow. */
  #onMalformed(error: NodeJS.ErrnoException, socket: Duplex): void {
    const { count, latest } = this.#pending.get(socket) ?? { count: 0, latest: null };
    const awaitingResponse = count === 1 && latest !== null && isAwaitingBody(...latest) ? latest[1] : null;
    // A client would take this response for that of an earlier request. So it is sent only if none is in progress, or if it
    // concerns the body of the only one.
    if (error.code === "ECONNRESET" || !socket.writable || (count > 0 && awaitingResponse === null)) {
      socket.destroy();
      return;
    }
    this.#service.log("a connection did not speak HTTP", undefined, { level: "debug", code: error.code });
    const problem = MALFORMED_PROBLEMS[error.code ?? ""] ?? NOT_HTTP;
    if (awaitingResponse === null) sendRaw(socket, problem);
    else sendProblem(awaitingResponse.setHeader("connection", "close"), problem);
  }
}

/** Is the request incomplete, and its response not yet begun? */
function isAwaitingBody(incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  return !incoming.complete && !outgoing.headersSent;
}

const NOT_HTTP = new Problem("INVALID", "malformed", "this is not an HTTP request");
const MALFORMED_PROBLEMS: Readonly<Record<string, Problem>> = {
  HPE_HEADER_OVERFLOW: new Problem("LIMIT", "header", "the head of the request must have at most 16384 bytes"),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: new Problem("LIMIT", "length", "the chunk extensions of the body are too long"),
  ERR_HTTP_REQUEST_TIMEOUT: new Problem("TIMEOUT", "slow", "the request did not arrive in time"),
};

/** Sends a response directly on a connection that Node no longer handles, and ends it. */
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
