/**
 * A client of etcd's JSON gateway: HTTP/1.1 to one member at a time, with a deadline for each call.
 *
 * Invariants
 * - A call is sent a second time only if the first certainly did nothing (no connection, no valid token), or on a kept
 *   connection that the member had closed: each call may arrive twice.
 * - A member that does not answer in time, or has no leader, is left for the next one, and the stream with it: what the stream of
 *   a member without a leader does not show is not missed for longer than a call takes.
 */

import type { ClientRequest, IncomingMessage, RequestOptions } from "node:http";
import { Agent as HttpAgent, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import type { ConnectionOptions } from "node:tls";
import { StoreRefusedError } from "../../../errors.ts";
import type { Clock } from "../../../util/clock.ts";
import { runAfterReading } from "../../../util/run-after-reading.ts";
import type { ServerAddress } from "../../cluster-url.ts";
import { EtcdError, hasCode, toCallError, UNAUTHENTICATED, UNAVAILABLE } from "./errors.ts";

export interface GatewayOptions {
  readonly servers: readonly ServerAddress[];
  readonly user?: string;
  readonly password?: string;
  /** A function is called before each connection. */
  readonly tls?: ConnectionOptions | (() => ConnectionOptions);
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** The events of a stream. */
export interface StreamEvents {
  onMessage(message: unknown): void;
  /** It has ended, whatever the reason; called once. */
  onEnd(error: Error): void;
}

/** A request with an open body: one message a line, in both directions. */
export interface GatewayStream {
  write(message: object): void;
  close(error?: Error): void;
}

/** More wait for a connection: a member has one goroutine for each. */
const MAX_CONNECTIONS = 64;
const NOTHING_SENT: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
]);
const CLOSED_KEPT: ReadonlySet<string> = new Set(["ECONNRESET", "EPIPE"]);

export class Gateway {
  readonly #options: GatewayOptions;
  readonly #agent: HttpAgent;
  readonly #onLeave: () => void;
  #current = 0;
  /** "": the servers do not authenticate. */
  #token: string | null;
  #pendingToken: Promise<void> | null = null;
  #isClosed = false;

  /** onLeave: the calls go to another member from now on. */
  constructor(options: GatewayOptions, onLeave: () => void) {
    this.#options = options;
    this.#onLeave = onLeave;
    this.#token = options.user === undefined ? "" : null;
    const settings = { keepAlive: true, maxSockets: MAX_CONNECTIONS, maxFreeSockets: MAX_CONNECTIONS };
    this.#agent = options.tls === undefined ? new HttpAgent(settings) : new HttpsAgent(settings);
  }

  /** @throws EtcdError; StoreRefusedError if a repetition cannot succeed; else the outcome is unknown */
  async call<T>(path: string, body: object, timeoutMs: number = this.#options.timeoutMs): Promise<T> {
    const text = JSON.stringify(body);
    let lastError: unknown;
    for (let attempt = 0; attempt < this.#options.servers.length; attempt++) {
      const server = this.#current;
      try {
        return (await this.#callWithToken(server, path, text, timeoutMs)) as T;
      } catch (error) {
        if (isMemberAtFault(error)) this.#leave(server);
        if (!NOTHING_SENT.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
        lastError = error;
      }
    }
    throw lastError;
  }

  /** Opens a stream to the member that answers the calls. Its events come later. */
  async openStream(path: string, events: StreamEvents): Promise<GatewayStream> {
    if (this.#token === null) await this.#authenticate(this.#current);
    const [server, token] = [this.#current, this.#token ?? ""];
    const request = this.#createRequest(server, path, token, false);
    let hasEnded = false;
    const end = (error: Error): void => {
      if (hasEnded) return;
      hasEnded = true;
      request.destroy();
      if (hasCode(error, UNAUTHENTICATED)) this.#forgetToken(token);
      if (hasCode(error, UNAVAILABLE)) this.#leave(server);
      events.onEnd(error);
    };
    request.on("error", end);
    request.on("response", (response: IncomingMessage) => {
      readLines(response, (line) => {
        if (hasEnded) return;
        const message = parseJson(line);
        if (isErrorBody(message)) end(toCallError(response.statusCode ?? 0, line));
        else events.onMessage(message);
      });
      response.on("close", () => end(new Error("etcd: the member has closed the watch stream")));
    });
    request.flushHeaders();
    return {
      write: (message) => void request.write(`${JSON.stringify(message)}\n`),
      close: (error = new Error("etcd: the watch stream was closed")) => end(error),
    };
  }

  /** The calls go to the next member, if they still go to the present one. */
  leave(): void {
    this.#leave(this.#current);
  }

  close(): void {
    this.#isClosed = true;
    this.#agent.destroy();
  }

  #leave(server: number): void {
    if (server !== this.#current || this.#isClosed) return;
    this.#current = (server + 1) % this.#options.servers.length;
    this.#onLeave();
  }

  async #callWithToken(server: number, path: string, text: string, timeoutMs: number): Promise<unknown> {
    if (this.#token === null) await this.#authenticate(server);
    const token = this.#token ?? "";
    try {
      return await this.#post(server, path, text, timeoutMs, token);
    } catch (error) {
      if (!hasCode(error, UNAUTHENTICATED) || this.#options.user === undefined) throw error;
      this.#forgetToken(token);
      if (this.#token === null) await this.#authenticate(server);
      return this.#post(server, path, text, timeoutMs, this.#token ?? "");
    }
  }

  /** A token expires, and dies with the member that has issued it. */
  #forgetToken(token: string): void {
    if (this.#options.user !== undefined && this.#token === token) this.#token = null;
  }

  #authenticate(server: number): Promise<void> {
    const { user: name, password = "", timeoutMs } = this.#options;
    this.#pendingToken ??= (async () => {
      try {
        const body = JSON.stringify({ name, password });
        const { token } = (await this.#post(server, "/v3/auth/authenticate", body, timeoutMs, "")) as { token: string };
        this.#token = token;
      } catch (error) {
        if (!(error instanceof EtcdError) || !/authentication is not enabled/.test(error.message)) throw error;
        this.#token = "";
      } finally {
        this.#pendingToken = null;
      }
    })();
    return this.#pendingToken;
  }

  async #post(server: number, path: string, text: string, timeoutMs: number, token: string): Promise<unknown> {
    try {
      return await this.#postOnce(server, path, text, timeoutMs, token);
    } catch (error) {
      if ((error as { isClosedKept?: boolean }).isClosedKept !== true) throw error;
      return this.#postOnce(server, path, text, timeoutMs, token);
    }
  }

  #postOnce(server: number, path: string, text: string, timeoutMs: number, token: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const request = this.#createRequest(server, path, token, true);
      const { clock } = this.#options;
      const timer = clock.timer(() =>
        // a busy process reads the answer late
        runAfterReading(() =>
          fail(Object.assign(new Error(`etcd: no answer within ${timeoutMs} ms`), { code: "ETIMEDOUT" })),
        ),
      );
      const fail = (error: Error): void => {
        timer.stop();
        request.destroy();
        reject(error);
      };
      timer.set(clock.now() + timeoutMs);
      request.on("error", (error: NodeJS.ErrnoException) => {
        const isClosedKept = request.reusedSocket && CLOSED_KEPT.has(error.code ?? "");
        fail(Object.assign(error, { isClosedKept }));
      });
      request.on("response", (response: IncomingMessage) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", fail);
        response.on("end", () => {
          timer.stop();
          const body = Buffer.concat(chunks).toString("utf8");
          const message = parseJson(body);
          if (response.statusCode !== 200 || isErrorBody(message)) reject(toCallError(response.statusCode ?? 0, body));
          else resolve(message);
        });
        response.on("aborted", () => fail(new Error("etcd: the member has closed the connection")));
      });
      request.end(text);
    });
  }

  #createRequest(server: number, path: string, token: string, isKept: boolean): ClientRequest {
    if (this.#isClosed) throw new Error("etcd: the client is closed");
    const { servers, tls } = this.#options;
    const { host, port } = servers[server] as ServerAddress;
    const options: RequestOptions = {
      ...(typeof tls === "function" ? tls() : tls),
      ...{ host, port, path, method: "POST" },
      agent: isKept ? this.#agent : false,
      headers: {
        "content-type": "application/json",
        ...(token !== "" && { authorization: token }),
        // a member without a leader ends the stream
        ...(!isKept && { "grpc-metadata-hasleader": "true" }),
      },
    };
    const request = tls === undefined ? httpRequest(options) : httpsRequest(options);
    // the core keeps the process alive, as long as code waits for a call
    request.on("socket", (socket) => socket.unref());
    return request;
  }
}

/** Another member may do better. */
function isMemberAtFault(error: unknown): boolean {
  if (error instanceof StoreRefusedError) return false;
  return !(error instanceof EtcdError) || error.code === UNAVAILABLE;
}

function readLines(response: IncomingMessage, onLine: (line: string) => void): void {
  let rest = "";
  response.setEncoding("utf8");
  response.on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() as string;
    for (const line of lines) if (line !== "") onLine(line);
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return { error: text.slice(0, 100) };
  }
}

function isErrorBody(message: unknown): boolean {
  return typeof message === "object" && message !== null && "error" in message;
}
