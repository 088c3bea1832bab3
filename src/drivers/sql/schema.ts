/**
 * The tables' layout: what every client, of every version and dialect, must compute alike. docs/design/sql.md describes
 * them.
 */

import { crc16 } from "../../util/crc16.ts";
import { describeValue } from "../../util/duration.ts";

/**
 * The version of the layout. It is part of every name but that of the layout table, so no two layouts share a table.
 */
export const LAYOUT_VERSION = 1;

/** The version of the layout of the tables on MariaDB and MySQL. */
export const MYSQL_LAYOUT_VERSION = 4;

/** The version of the layout of the tables on SQLite. */
export const SQLITE_LAYOUT_VERSION = 2;

/**
 * Number of bucket rows. Fixed, so that no call creates or deletes the row that it locks, and an idle key leaves
 * nothing behind. A power of two; part of the layout.
 */
export const BUCKET_COUNT = 1_024;

/** Prefix of all names, unless the option `prefix` says otherwise. */
export const DEFAULT_PREFIX = "holdfast";

/** The bucket of a key. All clients must agree on it: its row is the lock that protects the key's queue (I1). */
export function toBucket(key: string): number {
  return crc16(key) & (BUCKET_COUNT - 1);
}

/** The bucket of all these rows; null: they have several. They are sorted by it. */
export function toOneBucket(rows: readonly { readonly bucket: number }[]): number | null {
  const [first, last] = [rows[0], rows.at(-1)];
  return first !== undefined && first.bucket === last?.bucket ? first.bucket : null;
}

/**
 * The rule of the option `prefix`. Lower case and no special characters, so that the names mean the same to databases
 * that fold case and to people who type them; 32 characters, so that every name fits into the 63 bytes of PostgreSQL.
 */
export const prefixRule = (value: unknown): string | null =>
  typeof value === "string" && /^[a-z][a-z0-9_]{0,31}$/.test(value)
    ? null
    : "1 to 32 lower-case letters, digits and underscores, beginning with a letter";

/** The name of a table, function or index: "holdfast_1_claims"; of the layout table "holdfast_layout". */
export function toName(name: string, prefix: string = DEFAULT_PREFIX, layout: number = LAYOUT_VERSION): string {
  return name === "layout" ? `${prefix}_layout` : `${prefix}_${layout}_${name}`;
}

/**
 * Puts names into a statement: `{claims}` becomes `write("holdfast_1_claims", "claims")`, which quotes and qualifies
 * it. Only lower-case words in braces are names, so braces of literals and bodies stay.
 */
export function expandNames(
  text: string,
  prefix: string,
  write: (name: string, word: string) => string,
  layout: number = LAYOUT_VERSION,
): string {
  return text.replace(/\{([a-z][a-z_]*)\}/g, (_, word: string) => write(toName(word, prefix, layout), word));
}

/**
 * The lowest text above all that begin with the prefix, in the order of code points, which is that of UTF-8; null:
 * there is none.
 */
export function toUpperBound(prefix: string): string | null {
  const codePoints = Array.from(prefix, (char) => char.codePointAt(0) as number);
  for (let last = codePoints.pop(); last !== undefined; last = codePoints.pop()) {
    // surrogates are no characters
    const next = last === 0xd7ff ? 0xe000 : last + 1;
    if (next <= 0x10ffff) return String.fromCodePoint(...codePoints, next);
  }
  return null;
}

/** A name in double quotes, as in standard SQL. */
export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** The error message for functions that this version cannot call. `where`: the database or schema. */
export function explainRevision(
  driverName: string,
  what: "functions" | "procedures",
  where: string,
  found: unknown,
  own: number,
): string {
  return `${driverName}: the ${what} of ${where} are of revision ${describeValue(found)}, which this version of Holdfast (revision ${own}) cannot call: use the newer version that created them in this process, too`;
}

/** The error message for tables of another layout. `found`: what the layout table contains. */
export function explainLayout(driverName: string, table: string, found: unknown, own: number = LAYOUT_VERSION): string {
  return `${driverName}: ${table} has layout ${describeValue(found)}, but this version of Holdfast uses layout ${own}: use the version that created it, or another prefix`;
}

/** The statements of a text: a semicolon at the end of a line separates them. */
export function splitStatements(text: string): readonly string[] {
  return text.split(";\n");
}
