/** Bodies and queries: what is wrong with one is said with the name of the field; fields nobody knows are ignored. */

import type { IncomingMessage } from "node:http";
import { durationMs } from "../../duration.ts";
import { boundText } from "../terms.ts";
import type { Json } from "./json.ts";
import { JsonError, readJson } from "./json.ts";
import { invalid, Problem } from "./problem.ts";

/** The members of a body. */
export type Body = ReadonlyMap<string, Json>;

/** @throws Problem unless the request brings an object in JSON of at most so many bytes */
export async function readBody(incoming: IncomingMessage, mostBytes: number, depth: number): Promise<Body> {
  checkType(incoming);
  const length = Number(incoming.headers["content-length"] ?? 0);
  if (length > mostBytes) throw tooLong(mostBytes);
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > mostBytes) throw tooLong(mostBytes);
    chunks.push(chunk);
  }
  const body = jsonOf(textOf(Buffer.concat(chunks)), depth);
  if (!(body instanceof Map)) throw invalid("body", "malformed", "the body must be an object in JSON");
  return body;
}

/** A page can post a form to another site without being asked about it, but no JSON. */
function checkType({ headers }: IncomingMessage): void {
  const [type, ...parameters] = (headers["content-type"] ?? "").toLowerCase().split(";");
  const plain = parameters.every((it) => /^\s*charset="?utf-8"?\s*$/.test(it));
  if (type?.trim() !== "application/json" || !plain) {
    throw new Problem(415, "MEDIA_TYPE", "type", "the body must be application/json", { field: "content-type" });
  }
  const encoding = headers["content-encoding"]?.toLowerCase() ?? "identity";
  if (encoding !== "identity") {
    const field = "content-encoding";
    throw new Problem(415, "MEDIA_TYPE", "encoding", "the body must not be compressed", { field });
  }
}

function tooLong(mostBytes: number): Problem {
  return new Problem(413, "LIMIT", "length", `a body has at most ${mostBytes} bytes`, { field: "body", close: true });
}

function textOf(bytes: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalid("body", "malformed", "the body is no UTF-8");
  }
}

function jsonOf(text: string, depth: number): Json {
  try {
    return readJson(text, depth);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const field = error.field ?? "body";
    throw invalid(field, "malformed", `${field === "body" ? "the body" : field} ${error.message}`);
  }
}

/** A field as text; undefined if it is not there. @throws Problem if it is something else */
export function textIn(body: Body, field: string): string | undefined {
  const value = body.get(field);
  if (value === undefined) return undefined;
  if (typeof value !== "string") throw invalid(field, "malformed", `${field} must be a string`);
  return value;
}

/** A field that must be there. @throws Problem */
export function neededText(body: Body, field: string): string {
  const value = textIn(body, field);
  if (value === undefined) throw missing(field);
  return value;
}

export function missing(field: string): Problem {
  return invalid(field, "missing", `${field} must be given`);
}

/** A field as true or false. @throws Problem */
export function flagIn(body: Body, field: string, otherwise: boolean): boolean {
  const value = body.get(field);
  if (value === undefined) return otherwise;
  if (typeof value !== "boolean") throw invalid(field, "malformed", `${field} must be true or false`);
  return value;
}

/** A field as a whole number within a range; undefined if it is not there. @throws Problem */
export function countIn(body: Body, field: string, least: number, most: number): number | undefined {
  const value = body.get(field);
  if (value === undefined) return undefined;
  if (!Number.isSafeInteger(value) || (value as number) < least || (value as number) > most) {
    throw invalid(field, "range", `${field} must be a whole number from ${least} to ${most}`);
  }
  return value as number;
}

/** A field as a duration, 30000 or "30s", within a range; undefined if it is not there. @throws Problem */
export function durationIn(body: Body, field: string, least: number, most: number): number | undefined {
  const value = body.get(field);
  if (value === undefined) return undefined;
  let ms: number;
  try {
    ms = durationMs(value, field);
  } catch {
    const form = `${field} must be milliseconds or a text such as "30s", "5m" or "1h"`;
    throw invalid(field, "malformed", form);
  }
  if (ms < least || ms > most) {
    throw invalid(field, "range", `${field} must be from ${boundText(least)} to ${boundText(most)}`);
  }
  return ms;
}

/** The parameters of a query, each at most once. A misspelt one would ask for something else: it is refused. @throws Problem */
export function readQuery(url: string, known: readonly string[]): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  const at = url.indexOf("?");
  if (at === -1) return found;
  const query = url.slice(at + 1);
  if (!isDecodable(query)) throw invalid("query", "malformed", "the query has a % escape that is broken or no UTF-8");
  for (const [name, value] of new URLSearchParams(query)) {
    if (!known.includes(name)) {
      throw invalid("query", "unknown", `the query has a parameter that is none of ${known.join(", ") || "none"}`);
    }
    if (found.has(name)) throw invalid(name, "duplicate", `${name} stands in the query twice`);
    found.set(name, value);
  }
  return found;
}

/** Else URLSearchParams would read it as U+FFFD, which may stand in a key. */
function isDecodable(query: string): boolean {
  try {
    decodeURIComponent(query);
    return true;
  } catch {
    return false;
  }
}
