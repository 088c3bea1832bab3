/**
 * What mysql2 and mariadb share: literals, errors, and the status of the server.
 *
 * Parameters are sent as literals. Libraries would quote text with backslashes, which is open to injection in
 * a session with NO_BACKSLASH_ESCAPES and changes the text if the connection's character set lacks a character; and the
 * options of the user (queryFormat, namedPlaceholders) change what they do. Hexadecimal literals depend on nothing. Nor
 * does a text of letters and digits, as ids are, and it is half as long.
 */

import type { SqlRow, SqlValue } from "./types.ts";

const STATUS_IN_TRANSACTION = 1;
/** The same bytes in every character set that a connection can have. */
const PLAIN = /^[0-9A-Za-z]*$/;
/** Quoted text, quoted names, and the parameters between them. */
const TOKEN = /'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|\?/gs;

/** @throws TypeError if the statement has another number of parameters */
export function insertMysqlValues(text: string, values: readonly SqlValue[]): string {
  const parts = splitAtParameters(text);
  const count = parts.length - 1;
  if (count !== values.length) {
    throw new TypeError(`the statement has ${count} parameters, and got ${values.length} values`);
  }
  let statement = parts[0] as string;
  for (let index = 0; index < count; index++) statement += formatLiteral(values[index] as SqlValue) + parts[index + 1];
  return statement;
}

/** A driver has a few statements, which it sends again and again. */
const MAX_KNOWN_TEXTS = 100;
const knownTexts = new Map<string, readonly string[]>();

function splitAtParameters(text: string): readonly string[] {
  const known = knownTexts.get(text);
  if (known !== undefined) return known;
  const parts = findParts(text);
  if (knownTexts.size >= MAX_KNOWN_TEXTS) knownTexts.clear();
  knownTexts.set(text, parts);
  return parts;
}

/** The text before, between and after the parameters. */
function findParts(text: string): readonly string[] {
  if (!/['"`]/.test(text)) return text.split("?");
  const parts: string[] = [];
  let start = 0;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    if (token !== "?") continue;
    parts.push(text.slice(start, index));
    start = index + 1;
  }
  parts.push(text.slice(start));
  return parts;
}

function formatLiteral(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "string") {
    return PLAIN.test(value) ? `_utf8mb4'${value}'` : `_utf8mb4 X'${Buffer.from(value).toString("hex")}'`;
  }
  if (typeof value === "object") {
    return `X'${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("hex")}'`;
  }
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`a parameter is ${value}`);
  return String(value);
}

/** Whether the server reported the error, so that the connection is in order. */
export function isMysqlServerError(error: unknown): boolean {
  const { sqlState, fatal } = error as { readonly sqlState?: unknown; readonly fatal?: unknown };
  return typeof sqlState === "string" && fatal !== true;
}

/** Whether the status that the server sent with its last answer says that a transaction is open. */
export function hasOpenTransaction(status: number | null | undefined): boolean {
  return ((status ?? 0) & STATUS_IN_TRANSACTION) !== 0;
}

/**
 * Whether the columns have the names that their statement gave them. In a session whose character_set_results the
 * library does not know, such as UCS-2, names and texts are unreadable, and every field would be undefined.
 */
export function areReadable([row]: readonly SqlRow[]): boolean {
  return row === undefined || Object.keys(row).every((name) => /^[ -~]+$/.test(name));
}

/** Not an error of the server, so the connection counts as broken. */
export function createUnreadableError(): Error {
  return new Error(
    "the answer is in a character set that the client library cannot read: another user of the connection has changed character_set_results, which must be utf8mb4",
  );
}
