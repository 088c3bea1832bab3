// A server with an HTTP port, and requests to it as a script would send them.

import { mkdtempSync, rmSync } from "node:fs";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { ServeOptions, Server } from "../../src/server/serve.ts";
import { serve } from "../../src/server/serve.ts";
import { checkNoSecret } from "../support/canary.ts";

const undo: (() => void | Promise<void>)[] = [];

/** Undoes, after each test, what it opened: last first. */
export function cleanUp(): void {
  afterEach(async () => {
    for (const step of undo.splice(0).reverse()) await step();
  });
}

export function later(step: () => void | Promise<void>): void {
  undo.push(step);
}

/** A new folder of our own. */
export function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "holdfast-http-"));
  later(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A server that runs. */
export interface Running extends Server {
  /** Where it serves HTTP. */
  readonly url: string;
  readonly path: string;
  readonly dir: string;
  readonly logged: string[];
}

/** A server on a Unix socket and with an HTTP port; what it logs is kept. */
export async function running(options: Partial<ServeOptions> & { readonly in?: string } = {}): Promise<Running> {
  const { in: dir = folder(), ...rest } = options;
  const logged: string[] = [];
  const path = join(dir, "socket");
  later(() => checkNoSecret(logged.join("\n"), "the server's log"));
  const it = await serve({
    listen: `unix:${path}`,
    http: "127.0.0.1:0",
    log: (message, error, details) => {
      const plain = JSON.stringify(details ?? {}, (_, value) => (typeof value === "bigint" ? String(value) : value));
      logged.push(`${message}${error === undefined ? "" : `: ${error}`} ${plain}`);
    },
    ...(rest.driver === undefined && { state: join(dir, "state") }),
    ...rest,
  });
  later(() => it.close());
  return Object.assign(it, { url: it.httpAddress as string, logged, path, dir });
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
