/**
 * The claims of a batch, as `renew`, `release` and `detach` are sent them: one text in which each is a row of a fixed
 * width, in order of their buckets. Only this file knows the format: it writes rows, and has the expressions by which
 * procedures read them. So these cost nothing but a SUBSTRING; a cursor over JSON_TABLE would fill a temporary table
 * for each call.
 */

import { StoreRefusedError } from "../../../errors.ts";
import type { OwnedRow } from "../dialect.ts";

/** The fields in order, and the characters that each has. */
const WIDTHS = {
  bucket: 4,
  id: 26,
  /** Of a renewal: the claim asks to be recalled. Of a release: a `claim` call of it may still arrive. */
  flag: 1,
  /** Milliseconds. */
  ttl: 16,
  /** The next row is of another key, or there is none. */
  ends_key: 1,
  ends_bucket: 1,
} as const;

type Field = keyof typeof WIDTHS;

const FIELDS = Object.keys(WIDTHS) as readonly Field[];

/** The words of procedures, {row_id}, and what they stand for. The row is in the variable v_row. */
export const ROW_WORDS: Readonly<Record<string, string>> = {
  row_width: String(sumWidths(FIELDS)),
  row_bucket: readNumber("bucket"),
  row_id: readText("id"),
  row_flag: readBoolean("flag"),
  row_ttl: readNumber("ttl"),
  row_ends_key: readBoolean("ends_key"),
  row_ends_bucket: readBoolean("ends_bucket"),
};

/**
 * Letters and digits only, which no setting of the session changes (clients/mysql-protocol.ts).
 * @throws StoreRefusedError if an id has not the form of those that this package makes
 */
export function formatRows<R extends OwnedRow>(rows: readonly R[], toFlag: (row: R) => boolean = () => false): string {
  const texts = rows.map((row, index) => {
    const next = rows[index + 1];
    if (!/^[a-z2-7]{26}$/.test(row.id))
      throw new StoreRefusedError("mysql: the id of a claim has another form than expected");
    const values: Readonly<Record<Field, string>> = {
      bucket: String(row.bucket),
      id: row.id,
      flag: toDigit(toFlag(row)),
      ttl: String(row.ttlMs),
      ends_key: toDigit(row.key !== next?.key),
      ends_bucket: toDigit(row.bucket !== next?.bucket),
    };
    return FIELDS.map((field) => values[field].padStart(WIDTHS[field], "0")).join("");
  });
  return texts.join("");
}

function toDigit(value: boolean): string {
  return value ? "1" : "0";
}

function sumWidths(fields: readonly Field[]): number {
  return fields.reduce((sum, field) => sum + WIDTHS[field], 0);
}

function readText(field: Field): string {
  const start = sumWidths(FIELDS.slice(0, FIELDS.indexOf(field))) + 1;
  return `substring(v_row, ${start}, ${WIDTHS[field]})`;
}

function readNumber(field: Field): string {
  return `cast(${readText(field)} as signed)`;
}

function readBoolean(field: Field): string {
  return `${readText(field)} = '1'`;
}
