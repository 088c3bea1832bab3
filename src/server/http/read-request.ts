/** Reads the body and the query of a request. Errors name the field. */

import type { IncomingMessage } from "node:http";
import { JsonError, parseStrictJson } from "../../util/strict-json.ts";
import { invalidField, Problem } from "./problem.ts";

/** @throws Problem unless the body is a JSON object of at most `maxBytes` bytes */
export async function readBody(incoming: IncomingMessage, maxBytes: number, depth: number): Promise<object> {
  checkContentType(incoming);
  const length = Number(incoming.headers["content-length"] ?? 0);
  if (length > maxBytes) throw bodyTooLong(maxBytes);
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw bodyTooLong(maxBytes);
    chunks.push(chunk);
  }
  const body = parseJsonBody(decodeUtf8(Buffer.concat(chunks)), depth);
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw invalidField("body", "malformed", "the body must be a JSON object");
  }
  return body;
}

/** Requires JSON: without CORS a foreign web page can post forms and plain text to this server, but not JSON. */
function checkContentType({ headers }: IncomingMessage): void {
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

function parseJsonBody(text: string, depth: number): unknown {
  try {
    return parseStrictJson(text, depth);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const field = error.field ?? "body";
    throw invalidField(field, "malformed", `${field === "body" ? "the body" : field} ${error.message}`);
  }
}

/** The parameters of a query, each at most once. Unknown ones are refused: a misspelt `prefix` would list all keys. @throws Problem */
export function parseQuery(url: string, allowed: readonly string[]): ReadonlyMap<string, string> {
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

/** URLSearchParams would decode invalid bytes as U+FFFD, which is a valid character of a key. */
function isDecodable(query: string): boolean {
  try {
    decodeURIComponent(query);
    return true;
  } catch {
    return false;
  }
}
