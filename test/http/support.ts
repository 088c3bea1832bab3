// A server with an HTTP port, and requests to it as a script would send them.

import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { cleanUp, folder, later, running as runningServer } from "../server/support.ts";

export { cleanUp, folder, later };

/** A server that runs. */
export type Running = Awaited<ReturnType<typeof runningServer>> & {
  /** Where it serves HTTP. */
  readonly url: string;
};

/** A server on a Unix socket and with an HTTP port; what it logs is kept. */
export async function running(options: Parameters<typeof runningServer>[0] = {}): Promise<Running> {
  const it = await runningServer({ http: "127.0.0.1:0", ...options });
  return Object.assign(it, { url: it.httpAddress as string });
}

export interface Asked {
  readonly method?: string;
  readonly body?: unknown;
  /** The body as it is, instead of `body`. */
  readonly raw?: string | Buffer;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly credential?: string;
  readonly signal?: AbortSignal;
}

export interface Answered {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The body as JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever is there
  readonly json: any;
}

/** Sends one request on a connection of its own, and gives the whole answer. */
export async function ask(url: string, path: string, asked: Asked = {}): Promise<Answered> {
  const answer = await begin(url, path, asked);
  let text = "";
  for await (const chunk of answer.setEncoding("utf8")) text += chunk as string;
  const { statusCode: status = 0, headers } = answer;
  const seen = { method: asked.method ?? "GET", path, status, headers, text };
  for (const look of witnesses) look(seen);
  const isJson = text !== "" && (headers["content-type"] ?? "").includes("json");
  return { ...seen, json: isJson ? JSON.parse(text) : undefined };
}

/** POSTs an object. */
export function post(url: string, path: string, body: unknown, asked: Asked = {}): Promise<Answered> {
  return ask(url, path, { method: "POST", body, ...asked });
}

/** The answer when its head has come. */
export function begin(url: string, path: string, asked: Asked = {}): Promise<IncomingMessage> {
  const { method = "GET", body, raw, headers = {}, credential, signal } = asked;
  const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  const all = {
    ...(sent !== undefined && { "content-type": "application/json", "content-length": Buffer.byteLength(sent) }),
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
        headers: all,
        agent: false,
        ...(signal && { signal }),
      },
      resolve,
    );
    request.once("error", reject);
    request.end(sent);
  });
}

/** An answer as it went by. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

const witnesses = new Set<(seen: Seen) => void>();

/** Shows every answer of ask() to somebody. */
export function witness(look: (seen: Seen) => void): void {
  witnesses.add(look);
}

/** All that comes back on a connection that has sent these bytes, until it ends. */
export function spoken(url: string, bytes: string): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port) });
  later(() => {
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
