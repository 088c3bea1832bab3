/** A request in progress: its account, its body and its query. Errors name the field. */

import type { IncomingHttpHeaders } from "node:http";
import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import type { Principal } from "../../auth/access-control.ts";
import type { ListQuery } from "../../spi/driver.ts";
import { validateKey } from "../../util/keys.ts";
import { JsonError, parseStrictJson } from "../../util/strict-json.ts";
import { invalidField, Problem } from "./problem.ts";

/** Nesting depth of a body: those of the API have at most three levels. */
const MAX_BODY_DEPTH = 16;

/** What Hono and our middleware know of a request. */
export interface HttpEnv {
  readonly Bindings: HttpBindings;
  readonly Variables: {
    /** The account that sends the request; not set for public paths. */
    principal: Principal;
    /** Aborted when the connection has ended: no response can be sent any more. */
    disconnected: AbortSignal;
    /** The error response, if it is one. */
    problem: Problem | undefined;
  };
}

export type HttpContext = Context<HttpEnv>;

/** The address of the client; "" if the connection has ended already. */
export function clientAddress({ env }: HttpContext): string {
  return env.incoming.socket.remoteAddress ?? "";
}

/** Sets `disconnected`. */
export const watchDisconnect: MiddlewareHandler<HttpEnv> = async (c, next) => {
  const { incoming, outgoing } = c.env;
  const { socket } = incoming;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  if (socket.destroyed) abort();
  // not the "close" of the response: with pipelined requests only the first response would emit it
  socket.once("close", abort);
  outgoing.once("finish", () => socket.removeListener("close", abort));
  c.set("disconnected", controller.signal);
  await next();
};

/** A response in JSON. It ends with a line feed, for reading in a terminal. */
export function jsonResponse(c: HttpContext, value: object, status: 200 | 201 | 202 = 200): Response {
  return c.body(`${JSON.stringify(value)}\n`, status, { "content-type": "application/json" });
}

/** @throws Problem unless the body is a JSON object of at most `maxBytes` bytes */
export async function readBody({ env: { incoming } }: HttpContext, maxBytes: number): Promise<object> {
  checkContentType(incoming.headers);
  const length = Number(incoming.headers["content-length"] ?? 0);
  if (length > maxBytes) throw bodyTooLong(maxBytes);
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw bodyTooLong(maxBytes);
    chunks.push(chunk);
  }
  const body = parseJsonBody(decodeUtf8(Buffer.concat(chunks)));
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw invalidField("body", "malformed", "the body must be a JSON object");
  }
  return body;
}

/** Requires JSON: without CORS a foreign web page can post forms and plain text to this server, but not JSON. */
function checkContentType(headers: IncomingHttpHeaders): void {
  const [type, ...parameters] = (headers["content-type"] ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((parameter) => /^\s*charset="?utf-8"?\s*$/.test(parameter));
  if (type?.trim() !== "application/json" || !isUtf8) {
    throw new Problem("MEDIA_TYPE", "type", "the body must be application/json", { field: "content-type" });
  }
  const encoding = headers["content-encoding"]?.toLowerCase() ?? "identity";
  if (encoding !== "identity") {
    const field = "content-encoding";
    throw new Problem("MEDIA_TYPE", "encoding", "the body must not be compressed", { field });
  }
}

function bodyTooLong(maxBytes: number): Problem {
  return new Problem("LIMIT", "length", `the body must have at most ${maxBytes} bytes`, {
    field: "body",
    close: true,
  });
}

function decodeUtf8(bytes: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalidField("body", "malformed", "the body is not valid UTF-8");
  }
}

function parseJsonBody(text: string): unknown {
  try {
    return parseStrictJson(text, MAX_BODY_DEPTH);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const field = error.field ?? "body";
    throw invalidField(field, "malformed", `${field === "body" ? "the body" : field} ${error.message}`);
  }
}

/** The parameters of a query, each at most once. Unknown ones are refused: a misspelt `prefix` would list all keys. @throws Problem */
export function parseQuery({ env }: HttpContext, allowed: readonly string[]): ReadonlyMap<string, string> {
  const url = env.incoming.url as string;
  const parameters = new Map<string, string>();
  const start = url.indexOf("?");
  if (start === -1) return parameters;
  const query = url.slice(start + 1);
  if (!isDecodable(query))
    throw invalidField("query", "malformed", "the query has a % escape that is incomplete or not valid UTF-8");
  for (const [name, value] of new URLSearchParams(query)) {
    if (!allowed.includes(name)) {
      throw invalidField(
        "query",
        "unknown",
        `the query has an unknown parameter; possible: ${allowed.join(", ") || "none"}`,
      );
    }
    if (parameters.has(name)) throw invalidField(name, "duplicate", `${name} occurs more than once in the query`);
    parameters.set(name, value);
  }
  return parameters;
}

/** Which claims a query asks for: those of a prefix, of all keys by default, or those of one key. @throws Problem */
export function parseListQuery(query: ReadonlyMap<string, string>): ListQuery {
  const key = query.get("key");
  if (key === undefined) return { prefix: parsePrefix(query.get("prefix")) };
  if (query.has("prefix")) throw invalidField("key", "conflict", "give prefix or key, not both");
  return { key: parseKey(key, "key") };
}

/** A prefix may be any beginning of a valid key. @throws Problem */
export function parsePrefix(prefix = ""): string {
  return prefix === "" ? prefix : parseKey(prefix, "prefix");
}

function parseKey(text: string, field: string): string {
  try {
    return validateKey(text, field);
  } catch (error) {
    throw invalidField(field, "malformed", (error as TypeError).message);
  }
}

/** URLSearchParams would decode invalid bytes as U+FFFD, which is a valid character of a key. */
function isDecodable(query: string): boolean {
  try {
    // the result is used: bundlers remove calls without effects, and with them their errors
    return decodeURIComponent(query).isWellFormed();
  } catch {
    return false;
  }
}
