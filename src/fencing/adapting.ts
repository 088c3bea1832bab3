/** What all adapters of handles share: reading results by shape, and writing values into a statement. */

import type { Members } from "../drivers/sql/clients/members.ts";
import { readMembers } from "../drivers/sql/clients/members.ts";
import type { SqlResult, SqlRow, SqlValue } from "../drivers/sql/clients/types.ts";
import type { SqlDialect, SqlHandle } from "./types.ts";

/** A handle whose dialect may be unknown. */
export interface AdaptedHandle extends Omit<SqlHandle, "dialect"> {
  readonly dialect: SqlDialect | null;
}

/** Some libraries run a statement differently if it returns rows. */
export function returnsRows(text: string): boolean {
  return /^\s*(?:select|with|values|pragma)\b|\breturning\b/i.test(text);
}

/** Of a statement that returns rows: a write returns each row that it has changed. */
export function toReturnedRows(text: string, rows: readonly SqlRow[]): SqlResult {
  return { rows, affectedCount: isWrite(text) ? rows.length : 0 };
}

export function isWrite(text: string): boolean {
  return /^\s*(?:insert|update|delete)\b/i.test(text);
}

/** Libraries take bytes as a Buffer. */
export function toBuffer(value: SqlValue): unknown {
  return value instanceof Uint8Array ? Buffer.from(value) : value;
}

/** Of pg, postgres.js, mysql2, mariadb, or of a library for SQLite, each as it comes from the library. */
export function toSqlResult(result: unknown): SqlResult {
  if (typeof result === "number" || typeof result === "bigint") return { rows: [], affectedCount: Number(result) };
  const members = readMembers(result);
  // mysql2: the rows or the header, then the columns
  if (Array.isArray(result) && isMysql2Pair(result)) return toSqlResult(result[0]);
  const rows = Array.isArray(result) ? result : members.rows;
  const list = Array.isArray(rows) ? ([...rows] as SqlRow[]) : [];
  return { rows: list, affectedCount: readCount(members, list.length) };
}

function isMysql2Pair(result: readonly unknown[]): boolean {
  const [first] = result;
  if (result.length !== 2) return false;
  return (
    Array.isArray(first) || (typeof readMembers(first).affectedRows === "number" && "insertId" in readMembers(first))
  );
}

function readCount(members: Members, rowCount: number): number {
  const { command } = members;
  if (typeof command === "string") {
    return /^(?:INSERT|UPDATE|DELETE|MERGE)/.test(command) ? Number(members.rowCount ?? members.count ?? rowCount) : 0;
  }
  return Number(members.affectedRows ?? members.changes ?? members.rowsAffected ?? members.rowCount ?? 0);
}

/** Replaces each parameter. `write` gets its value and returns what is put in its place. */
export function replaceParameters(
  text: string,
  values: readonly SqlValue[],
  write: (value: SqlValue) => string,
): string {
  let position = 0;
  return text.replace(/\$(\d+)|\?/g, (_, digits: string | undefined) =>
    write(values[digits === undefined ? position++ : Number(digits) - 1] ?? null),
  );
}

/**
 * Writes a value as a literal for handles that take no parameters. Text and bytes are written in hexadecimal, so no content,
 * character set or setting of the session (NO_BACKSLASH_ESCAPES) can end the literal.
 */
export function toLiteral(value: SqlValue, dialect: "mysql" | "sqlite"): string {
  if (value === null) return "null";
  if (typeof value === "boolean") return toBooleanLiteral(value, dialect);
  if (typeof value === "bigint") return `(${value})`;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`a number of a statement must be finite, not ${value}`);
    return `(${value})`;
  }
  const hex = Buffer.from(value as string).toString("hex");
  if (typeof value !== "string") return `x'${hex}'`;
  return dialect === "mysql" ? `convert(x'${hex}' using utf8mb4)` : `cast(x'${hex}' as text)`;
}

function toBooleanLiteral(value: boolean, dialect: SqlDialect): string {
  if (dialect === "sqlite") return value ? "1" : "0";
  return String(value);
}
