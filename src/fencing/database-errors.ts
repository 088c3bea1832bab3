/** What an error of a database says, whichever library or query builder passed it on. */

/** Where libraries keep the error of the database inside their own: Prisma in the last two, TypeORM in driverError. */
const INNER = ["cause", "driverError", "originalError", "meta", "driverAdapterError"] as const;
const MAX_DEPTH = 6;

const SQLSTATE = /^[0-9A-Z]{5}$/;

export const SQLITE_BUSY = 5;
export const SQLITE_LOCKED = 6;
export const SQLITE_IOERR = 10;
/** better-sqlite3 has the names only. */
const SQLITE_NUMBERS = { SQLITE_BUSY, SQLITE_LOCKED, SQLITE_IOERR } as const;
const SQLITE_NAMES = Object.keys(SQLITE_NUMBERS) as (keyof typeof SQLITE_NUMBERS)[];

/** An error, or an object inside it. */
export interface ErrorDetail {
  readonly message?: unknown;
  readonly code?: unknown;
  readonly errno?: unknown;
  readonly errcode?: unknown;
  readonly rawCode?: unknown;
  /** The database's own code, in Prisma's. */
  readonly originalCode?: unknown;
}

/** The error and those inside it, outermost first. */
export function listDetails(error: unknown): ErrorDetail[] {
  const details: ErrorDetail[] = [];
  let level: unknown[] = [error];
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const objects = level.filter(
      (value): value is Record<string, unknown> => typeof value === "object" && value !== null,
    );
    details.push(...objects);
    level = objects.flatMap((object) => INNER.map((name) => object[name]));
  }
  return details;
}

/** The code of PostgreSQL; null: it is none. */
export function readSqlState({ code, originalCode = code }: ErrorDetail): string | null {
  // of the same length are Prisma's own codes, such as P2010, and one of Node's
  if (typeof originalCode !== "string" || !SQLSTATE.test(originalCode)) return null;
  return /^P2\d{3}$|^EPIPE$/.test(originalCode) ? null : originalCode;
}

/** The number of MariaDB or MySQL; null: it is none. Those below 2000 and from 3000 on are the server's, others a client library's. */
export function readMysqlNumber({ errno, code, originalCode = code }: ErrorDetail): number | null {
  // Prisma has the number as text
  const text = typeof originalCode === "string" && /^\d{4}$/.test(originalCode) ? originalCode : 0;
  const number = typeof errno === "number" ? errno : Number(text);
  return (number >= 1000 && number < 2000) || (number >= 3000 && number < 10_000) ? number : null;
}

/** The number of SQLite, without its subcode; null: it is none. */
export function readSqliteNumber({ errcode, rawCode, errno, code }: ErrorDetail): number | null {
  for (const number of [errcode, rawCode, errno]) {
    if (typeof number === "number" && number > 0) return number & 0xff;
  }
  if (typeof code !== "string" || !code.startsWith("SQLITE_")) return null;
  const name = SQLITE_NAMES.find((each) => code.startsWith(each));
  return name === undefined ? 1 : SQLITE_NUMBERS[name];
}
