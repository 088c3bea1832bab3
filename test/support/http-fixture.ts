// A server with an HTTP port, and requests to it as a script would send them.

import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  onCleanup,
  startServer as runningServer,
} from "./server-fixture.ts";

export { cleanUpAfterEach, createTemporaryDirectory, onCleanup };

/** A server that runs. */
export type HttpTestServer = Awaited<ReturnType<typeof runningServer>> & {
  /** Where it serves HTTP. */
  readonly url: string;
};

/** A server on a Unix socket and with an HTTP port; what it logs is kept. */
export async function startHttpServer(options: Parameters<typeof runningServer>[0] = {}): Promise<HttpTestServer> {
  const it = await runningServer({ http: "127.0.0.1:0", ...options });
  return Object.assign(it, { url: it.httpAddress as string });
}

export interface RequestOptions {
  readonly method?: string;
  readonly body?: unknown;
  /** The body as it is, instead of `body`. */
  readonly raw?: string | Buffer;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly credential?: string;
  readonly signal?: AbortSignal;
}

export interface HttpResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The body as JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever is there
  readonly json: any;
}

/** Sends one request on a connection of its own, and gives the whole answer. */
export async function request(url: string, path: string, options: RequestOptions = {}): Promise<HttpResponse> {
  const answer = await openRequest(url, path, options);
  let text = "";
  for await (const chunk of answer.setEncoding("utf8")) text += chunk as string;
  const { statusCode: status = 0, headers } = answer;
  const exchange = { method: options.method ?? "GET", path, status, headers, text };
  for (const look of responseObservers) look(exchange);
  const isJson = text !== "" && (headers["content-type"] ?? "").includes("json");
  return { ...exchange, json: isJson ? JSON.parse(text) : undefined };
}

/** POSTs an object. */
export function post(url: string, path: string, body: unknown, options: RequestOptions = {}): Promise<HttpResponse> {
  return request(url, path, { method: "POST", body, ...options });
}

/** The answer when its head has come. */
export function openRequest(url: string, path: string, options: RequestOptions = {}): Promise<IncomingMessage> {
  const { method = "GET", body, raw, headers = {}, credential, signal } = options;
  const content = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  const allHeaders = {
    ...(content !== undefined && { "content-type": "application/json", "content-length": Buffer.byteLength(content) }),
    ...(credential !== undefined && { authorization: `Bearer ${credential}` }),
    ...headers,
  };
  return new Promise((resolve, reject) => {
    const target = new URL(url);
    const request = httpRequest(
      {
        host: target.hostname.replace(/^\[|\]$/g, ""),
        port: target.port,
        path,
        method,
        headers: allHeaders,
        agent: false,
        ...(signal && { signal }),
      },
      resolve,
    );
    request.once("error", reject);
    request.end(content);
  });
}

/** An answer as it went by. */
export interface RecordedExchange {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

const responseObservers = new Set<(seen: RecordedExchange) => void>();

/** Shows every answer of request() to somebody. */
export function observeResponses(look: (seen: RecordedExchange) => void): void {
  responseObservers.add(look);
}

/** All that comes back on a connection that has sent these bytes, until it ends. */
export function sendBytes(url: string, bytes: string): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port) });
  onCleanup(() => {
    socket.destroy();
  });
  return new Promise((resolve, reject) => {
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    socket.once("error", reject).once("close", () => resolve(text));
    socket.write(bytes);
  });
}
