/** What an error of a database means for a write, whichever library or query builder passed it on. */

import type { ErrorDetail } from "../fencing/database-errors.ts";
import {
  listDetails,
  readMysqlNumber,
  readSqliteNumber,
  readSqlState,
  SQLITE_BUSY,
  SQLITE_IOERR,
  SQLITE_LOCKED,
} from "../fencing/database-errors.ts";
import type { SqlDialect } from "../fencing/handles.ts";
import type { StoreFailure } from "./optimistic.ts";

/** serialization_failure, deadlock_detected, in_failed_sql_transaction (the transaction is over: see canRetry). */
const POSTGRES_MOVED = /^(?:40001|40P01|25P02)$/;
/** connection_exception, statement_completion_unknown, the server ended the connection. */
const POSTGRES_UNKNOWN = /^(?:08|40003|57P0[125])/;

/** ER_LOCK_DEADLOCK; ER_CHECKREAD: the row has changed since the snapshot (innodb_snapshot_isolation). */
const MYSQL_MOVED: readonly number[] = [1213, 1020];
/** ER_SERVER_SHUTDOWN, ER_NET_*, ER_CONNECTION_KILLED. */
const MYSQL_UNKNOWN: readonly number[] = [1053, 1158, 1159, 1160, 1161, 1927];

/** Another connection is writing, so this statement has not. */
const SQLITE_MOVED: readonly number[] = [SQLITE_BUSY, SQLITE_LOCKED];

/** No connection was made, so nothing was sent. */
const NOT_CONNECTED = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ER_GET_CONNECTION_TIMEOUT)$/;

/**
 * An error that the database did not send itself, such as a reset connection, leaves it unknown whether the statement was
 * executed. A TypeError comes from a library that refused the arguments.
 */
export function classifyDatabaseError(dialect: SqlDialect, error: unknown): StoreFailure {
  const details = listDetails(error);
  for (const each of details) {
    const failure = CLASSIFIERS[dialect](each);
    if (failure !== null) return failure;
  }
  const isRefused = details.some(({ code }) => typeof code === "string" && NOT_CONNECTED.test(code));
  return isRefused || error instanceof TypeError ? "failed" : "unknown";
}

/** Whether the transaction that the statement ran in, if any, is over: the next statement would run outside of it. */
export function endsTransaction(dialect: SqlDialect, error: unknown): boolean {
  if (dialect === "mysql") return listDetails(error).some((each) => readMysqlNumber(each) === 1213);
  return dialect === "postgres" && listDetails(error).some((each) => readSqlState(each) === "25P02");
}

const CLASSIFIERS: Readonly<Record<SqlDialect, (error: ErrorDetail) => StoreFailure | null>> = {
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
