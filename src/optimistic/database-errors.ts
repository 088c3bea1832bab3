/** What an error of a database means for a write, whichever library or query builder passed it on. */

import type { SqlDialect } from "../fencing/handles.ts";
import type { StoreFailure } from "./optimistic.ts";

/** Query builders wrap the error of the library. */
const MAX_CAUSES = 5;

/** serialization_failure, deadlock_detected, in_failed_sql_transaction (the transaction is over: see canRetry). */
const POSTGRES_MOVED = /^(?:40001|40P01|25P02)$/;
/** connection_exception, statement_completion_unknown, the server ended the connection. */
const POSTGRES_UNKNOWN = /^(?:08|40003|57P0[125])/;
const SQLSTATE = /^[0-9A-Z]{5}$/;

/** ER_LOCK_DEADLOCK; ER_CHECKREAD: the row has changed since the snapshot (innodb_snapshot_isolation). */
const MYSQL_MOVED: readonly number[] = [1213, 1020];
/** ER_SERVER_SHUTDOWN, ER_NET_*, ER_CONNECTION_KILLED. */
const MYSQL_UNKNOWN: readonly number[] = [1053, 1158, 1159, 1160, 1161, 1927];

/** SQLITE_BUSY and SQLITE_LOCKED: another connection is writing, so this statement has not. */
const SQLITE_MOVED: readonly number[] = [5, 6];
const SQLITE_IOERR = 10;

/** better-sqlite3 has the names only. */
const SQLITE_NUMBERS = { SQLITE_BUSY: 5, SQLITE_LOCKED: 6, SQLITE_IOERR } as const;
const SQLITE_NAMES = Object.keys(SQLITE_NUMBERS) as (keyof typeof SQLITE_NUMBERS)[];

/** No connection was made, so nothing was sent. */
const NOT_CONNECTED = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ER_GET_CONNECTION_TIMEOUT)$/;

interface ErrorLike {
  readonly code?: unknown;
  readonly errno?: unknown;
  readonly errcode?: unknown;
  readonly rawCode?: unknown;
  readonly cause?: unknown;
  /** TypeORM. */
  readonly driverError?: unknown;
  /** Prisma: the database's own code is in one of these. */
  readonly meta?: unknown;
  readonly driverAdapterError?: unknown;
  readonly originalCode?: unknown;
}

/**
 * An error that the database did not send itself, such as a reset connection, leaves it unknown whether the statement was
 * executed. A TypeError comes from a library that refused the arguments.
 */
export function classifyDatabaseError(dialect: SqlDialect, error: unknown): StoreFailure {
  const chain = listCauses(error);
  for (const each of chain) {
    const failure = CLASSIFIERS[dialect](each);
    if (failure !== null) return failure;
  }
  const isRefused = chain.some(({ code }) => typeof code === "string" && NOT_CONNECTED.test(code));
  return isRefused || error instanceof TypeError ? "failed" : "unknown";
}

/** Whether the transaction that the statement ran in, if any, is over: the next statement would run outside of it. */
export function endsTransaction(dialect: SqlDialect, error: unknown): boolean {
  if (dialect === "mysql") return listCauses(error).some((each) => readMysqlNumber(each) === 1213);
  return dialect === "postgres" && listCauses(error).some((each) => readSqlState(each) === "25P02");
}

const CLASSIFIERS: Readonly<Record<SqlDialect, (error: ErrorLike) => StoreFailure | null>> = {
  postgres(error) {
    const state = readSqlState(error);
    if (state === null) return null;
    if (POSTGRES_MOVED.test(state)) return "moved";
    return POSTGRES_UNKNOWN.test(state) ? "unknown" : "failed";
  },
  mysql(error) {
    const number = readMysqlNumber(error);
    if (number === null) return null;
    if (MYSQL_MOVED.includes(number)) return "moved";
    return MYSQL_UNKNOWN.includes(number) ? "unknown" : "failed";
  },
  sqlite(error) {
    const number = readSqliteNumber(error);
    if (number === null) return null;
    if (SQLITE_MOVED.includes(number)) return "moved";
    return number === SQLITE_IOERR ? "unknown" : "failed";
  },
};

/** The error and what caused it. */
function listCauses(error: unknown): readonly ErrorLike[] {
  const found: ErrorLike[] = [];
  for (let next = error; found.length < MAX_CAUSES && typeof next === "object" && next !== null; ) {
    const each = next as ErrorLike;
    found.push(each);
    next = each.cause ?? each.driverError ?? each.driverAdapterError ?? each.meta;
  }
  return found;
}

function readSqlState({ code, originalCode = code }: ErrorLike): string | null {
  // of the same length are Prisma's own codes, such as P2010, and one of Node's
  if (typeof originalCode !== "string" || !SQLSTATE.test(originalCode)) return null;
  return /^P2\d{3}$|^EPIPE$/.test(originalCode) ? null : originalCode;
}

/** Numbers below 2000 and from 3000 on are the server's; from 2000 to 2999 they are those of a client library. */
function readMysqlNumber({ errno, code, originalCode = code }: ErrorLike): number | null {
  // Prisma has the number as text
  const text = typeof originalCode === "string" && /^\d{4}$/.test(originalCode) ? originalCode : 0;
  const number = typeof errno === "number" ? errno : Number(text);
  return (number >= 1000 && number < 2000) || (number >= 3000 && number < 10_000) ? number : null;
}

function readSqliteNumber({ errcode, rawCode, errno, code }: ErrorLike): number | null {
  for (const number of [errcode, rawCode, errno]) {
    if (typeof number === "number" && number > 0) return number & 0xff;
  }
  if (typeof code !== "string" || !code.startsWith("SQLITE_")) return null;
  const name = SQLITE_NAMES.find((each) => code.startsWith(each));
  return name === undefined ? 1 : SQLITE_NUMBERS[name];
}
