/** What pg and postgres.js share: values in text form, and errors. */

import { normalizeInteger } from "./integers.ts";
import type { SqlValue } from "./types.ts";

/** The object identifiers of types. */
const INTEGER_TYPES: readonly number[] = [20, 21, 23, 26];
const BYTEA_TYPE = 17;
const BOOLEAN_TYPE = 16;

/** Parses a value that came as text. Types that the drivers do not use stay text. */
export function parsePostgresText(type: number, text: string): unknown {
  if (INTEGER_TYPES.includes(type)) return normalizeInteger(BigInt(text));
  if (type === BOOLEAN_TYPE) return text === "t";
  return type === BYTEA_TYPE ? parseBytes(text) : text;
}

/** Quoted text, quoted names, and the parameters between them. */
const TOKEN = /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\d+)/g;

/**
 * Replaces the parameters $1, $2 ... by literals without a type, as parameters have none. The form E'...' means the
 * same whatever standard_conforming_strings is.
 * @throws TypeError if the statement has another number of parameters
 */
export function insertPostgresValues(text: string, values: readonly SqlValue[]): string {
  const used = new Set<number>();
  const statement = text.replace(TOKEN, (token, number?: string) => {
    if (number === undefined) return token;
    used.add(Number(number));
    const value = values[Number(number) - 1];
    return value === undefined ? token : formatLiteral(value);
  });
  if (used.size === values.length && Math.max(0, ...used) === values.length) return statement;
  throw new TypeError(`the statement has ${used.size} parameters, and got ${values.length} values`);
}

function formatLiteral(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "object") return `E'\\\\x${Buffer.from(value).toString("hex")}'`;
  return `E'${String(value).replace(/[^\w .,:-]/gu, escapeChar)}'`;
}

/**
 * In hexadecimal: in some character sets of a client a backslash is the second byte of a character, and would not
 * escape.
 */
function escapeChar(char: string): string {
  return `\\U${(char.codePointAt(0) as number).toString(16).padStart(8, "0")}`;
}

/** @throws Error if the session has bytea_output = escape */
function parseBytes(text: string): Buffer {
  if (text.startsWith("\\x")) return Buffer.from(text.slice(2), "hex");
  throw new Error("bytes must be in hexadecimal form: set bytea_output = hex");
}

/** Whether the server reported the error, so that the connection is in order. */
export function isPostgresServerError(error: unknown): boolean {
  return typeof (error as { readonly severity?: unknown }).severity === "string";
}
