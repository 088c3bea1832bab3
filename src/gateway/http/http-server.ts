/**
 * The HTTP port: connections and their limits, requests that are malformed or come from foreign web pages, TLS, and the
 * end of the port. Loaded only with --http.
 */

import type { IncomingMessage, Server as NodeHttpServer, ServerOptions, ServerResponse } from "node:http";
import { createServer, STATUS_CODES } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ConnectionLimiter } from "../../server/connection/connection-limiter.ts";
import type { ConnectionCounts } from "../../server/events/metrics.ts";
import type { HostPort } from "../../server/net/listen-address.ts";
import { isReachableRemotely } from "../../server/net/listen-address.ts";
import type { HttpListener } from "../../server/net/listener.ts";
import { LINGER_MS, trackConnections } from "../../server/net/listener.ts";
import type { TlsConfig } from "../../server/net/tls-config.ts";
import { HELLO_TIMEOUT_MS } from "../../server/service.ts";
import { formatHostPort } from "../../util/server-url.ts";
import type { GatewayService } from "../service.ts";
import type { HttpApp, HttpAppOptions } from "./app.ts";
import { createHttpApp } from "./app.ts";
import { checkOrigin } from "./origin-check.ts";
import { formatProblem, formatProblemHeaders, Problem, SECURITY_HEADERS, sendProblem } from "./problem.ts";

/** The time for the head of a request to arrive, and for an idle connection to send its next request. */
const HEADERS_TIMEOUT_MS = 10_000;
/** The time for a complete request to arrive. */
const REQUEST_TIMEOUT_MS = 30_000;
/** A connection without traffic ends after this time, which is longer than any request waits. */
const IDLE_TIMEOUT_MS = 60_000;
/** A connection ends after so many requests. This bounds the requests that a client can send without reading responses. */
const MAX_REQUESTS_PER_CONNECTION = 500;

export interface HttpServerOptions extends HttpAppOptions {
  /** The host of the --http address. A Host header may name it, or the address itself. */
  readonly host: string;
  /** Further names by which clients call the server, beside those of its certificate. Any other Host header is refused. */
  readonly names?: readonly string[];
}

/** A server that does not listen yet. */
export interface HttpServer {
  readonly server: NodeHttpServer;
  /** The numbers of open connections, waiting claims and event streams. */
  stats(): ReturnType<HttpApp["stats"]> & { readonly connections: number };
  replaceCertificate(tlsConfig: TlsConfig): void;
  /** Ends waits and event streams; each connection ends with its next response. */
  drain(): void;
  /** Stops all timers and streams. To be called after all connections have ended. */
  close(): void;
}

/** Creates a server, with TLS unless `tls` is null. */
export function createHttpServer(options: HttpServerOptions, tls: TlsConfig | null = null): HttpServer {
  const { service, metrics, host, names = [] } = options;
  let certificateNames = tls?.hostNames ?? [];
  const serverOptions = createServerOptions();
  const server =
    tls === null ? createServer(serverOptions) : createSecureServer({ ...serverOptions, ...toTlsOptions(tls) });
  const connections = new HttpConnections(service, (incoming, outgoing) => {
    try {
      // before anything else reads the request; a new certificate may have other names
      checkOrigin(incoming, { host, names: [...names, ...certificateNames] });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      metrics.recordRefusal(error.code);
      sendProblem(outgoing, error);
      return;
    }
    void app.handle(incoming, outgoing);
  });
  const app = createHttpApp(options, connections.counts);
  connections.attach(server);
  return {
    server,
    stats: () => ({ ...app.stats(), connections: connections.counts.open }),
    replaceCertificate(tlsConfig) {
      certificateNames = tlsConfig.hostNames;
      if ("setSecureContext" in server) server.setSecureContext(toTlsOptions(tlsConfig));
    },
    drain() {
      connections.drain();
      app.drain();
    },
    close: () => app.close(),
  };
}

/** Opens the HTTP port, with TLS if other machines can reach it. @throws the system's error, with the address */
export async function openHttpServer(
  address: HostPort,
  options: Omit<HttpServerOptions, "host">,
  tls: TlsConfig | null,
): Promise<HttpListener> {
  const usedTls = tls !== null && isReachableRemotely({ ...address, tls: true }) ? tls : null;
  const http = createHttpServer({ ...options, host: address.host }, usedTls);
  const { server } = http;
  const connections = trackConnections(server);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const message = `cannot listen on ${formatHostPort(address)} for HTTP: ${cause.message}`;
      reject(Object.assign(new Error(message, { cause }), { code: cause.code }));
    });
    server.listen({ host: address.host, port: address.port }, resolve);
  });
  server.removeAllListeners("error").on("error", () => undefined);
  const { port } = server.address() as AddressInfo;
  return {
    address: `${usedTls === null ? "http" : "https"}://${formatHostPort({ ...address, port })}`,
    replaceCertificate: http.replaceCertificate,
    drain: http.drain,
    async close() {
      await connections.close();
      http.close();
    },
  };
}

function toTlsOptions({
  context,
  requiresClientCert,
}: TlsConfig): TlsConfig["context"] & { readonly requestCert: boolean } {
  return { ...context, requestCert: requiresClientCert };
}

/** The options of node:http and node:https. */
function createServerOptions(): ServerOptions & { readonly handshakeTimeout: number } {
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
    handshakeTimeout: HELLO_TIMEOUT_MS,
  };
}

/** The requests of a connection. */
interface PendingRequests {
  /** Those without a complete response. */
  count: number;
  /** There were more than a connection may have: it ends with the last response. */
  isOverLimit: boolean;
  /** The newest request and its response. */
  latest: readonly [IncomingMessage, ServerResponse];
}

/** Admits connections, and responds to what is not a request. */
class HttpConnections {
  readonly #service: GatewayService;
  /** A separate limiter, so that HTTP clients do not use up the connections of the lock protocol. */
  readonly #limiter: ConnectionLimiter<never>;
  readonly #handleRequest: (incoming: IncomingMessage, outgoing: ServerResponse) => void;
  readonly #pendingRequests = new Map<Duplex, PendingRequests>();
  #isDraining = false;

  constructor(service: GatewayService, handleRequest: (incoming: IncomingMessage, outgoing: ServerResponse) => void) {
    this.#service = service;
    this.#limiter = new ConnectionLimiter(service.limits);
    this.#handleRequest = handleRequest;
  }

  /** The numbers of connections now and since the start. */
  get counts(): ConnectionCounts {
    return this.#limiter;
  }

  attach(server: NodeHttpServer): void {
    // with a limit Node silently drops further headers, for example Origin; maxHeaderSize bounds them already
    server.maxHeadersCount = 0;
    server.maxRequestsPerSocket = MAX_REQUESTS_PER_CONNECTION;
    server.setTimeout(IDLE_TIMEOUT_MS);
    server.on("connection", (socket: Socket) => this.#acceptSocket(socket));
    server.on("request", (incoming, outgoing) => this.#onRequest(incoming, outgoing));
    // unknown expectations are ignored, like other unknown headers
    server.on("checkExpectation", (incoming, outgoing) => this.#onRequest(incoming, outgoing));
    server.on("dropRequest", ({ socket }) => this.#onDropped(socket));
    server.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#onMalformed(error, socket));
    // no response is possible without a TLS handshake
    server.on("tlsClientError", (_error: Error, socket: Socket) => socket.destroy());
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
    this.#countRequest(incoming, outgoing);
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) outgoing.setHeader(name, value as string);
    if (this.#isDraining) outgoing.setHeader("connection", "close");
    this.#handleRequest(incoming, outgoing);
  }

  #countRequest(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const { socket } = incoming;
    const latest = [incoming, outgoing] as const;
    const pending = this.#pendingRequests.get(socket) ?? { count: 0, isOverLimit: false, latest };
    if (!this.#pendingRequests.has(socket)) {
      this.#pendingRequests.set(socket, pending);
      socket.once("close", () => this.#pendingRequests.delete(socket));
      // each waiting request adds a listener; without this Node warns of a leak
      socket.setMaxListeners(0);
    }
    pending.count++;
    pending.latest = latest;
    outgoing.once("finish", () => {
      pending.count--;
      if (pending.isOverLimit && pending.count === 0) socket.destroySoon();
    });
  }

  /** Node has answered a request beyond the limit. It would do so for each further one, and its answers take memory. */
  #onDropped(socket: Socket): void {
    const pending = this.#pendingRequests.get(socket);
    if (pending === undefined || pending.count === 0) socket.destroySoon();
    else pending.isOverLimit = true;
  }

  /** Handles input that is not a valid request, too large, or too slow. */
  #onMalformed(error: NodeJS.ErrnoException, socket: Duplex): void {
    const pending = this.#pendingRequests.get(socket);
    const isInProgress = pending !== undefined && pending.count > 0;
    const response = pending?.count === 1 && isAwaitingBody(...pending.latest) ? pending.latest[1] : null;
    // A client would take a response for that of an earlier request. So it is sent only if none is in progress, or if it
    // concerns the body of the only one.
    if (error.code === "ECONNRESET" || !socket.writable || (isInProgress && response === null)) {
      socket.destroy();
      return;
    }
    this.#service.log("a connection did not speak HTTP", undefined, { level: "debug", code: error.code });
    const problem = MALFORMED_PROBLEMS[error.code ?? ""] ?? NOT_HTTP;
    if (response === null) sendRaw(socket, problem);
    else sendProblem(response.setHeader("connection", "close"), problem);
  }
}

/** Is the request incomplete, and its response not yet begun? */
function isAwaitingBody(incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  return !incoming.complete && !outgoing.headersSent;
}

const NOT_HTTP = new Problem("INVALID", "malformed", "this is not an HTTP request");
const MALFORMED_PROBLEMS: Readonly<Record<string, Problem>> = {
  HPE_CHUNK_EXTENSIONS_OVERFLOW: new Problem("LIMIT", "length", "the chunk extensions of the body are too long"),
  HPE_HEADER_OVERFLOW: new Problem("LIMIT", "header", "the head of the request must have at most 16384 bytes"),
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
