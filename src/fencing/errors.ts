/** The errors of fence(), and how those of a database become them. */

import type { LockErrorDetails } from "../errors.ts";
import { formatKeys, LockError, StoreRefusedError } from "../errors.ts";
import type { ErrorDetail } from "./database-errors.ts";
import { listDetails, readMysqlNumber, readSqliteNumber, readSqlState, SQLITE_BUSY } from "./database-errors.ts";
import type { SqlDialect } from "./types.ts";

/** A later holder has fenced already: this transaction must not commit. The lock is lost, even if its client does not know yet. */
export class StaleLockError extends LockError {
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_STALE", message, details);
    this.name = "StaleLockError";
  }
}

/**
 * The database could not order this transaction against another one: a serialization failure, a deadlock, or a lock of the
 * database that was not free in time. The lock may well be held: roll back, and run the transaction again.
 */
export class FenceConflictError extends LockError {
  /** Running the whole transaction again may succeed. */
  readonly retryable = true as const;
  constructor(message: string, details?: LockErrorDetails) {
    super("LOCK_FENCE_CONFLICT", message, details);
    this.name = "FenceConflictError";
  }
}

/** The refusal of a holder whose token is lower than one that the table has. */
export function createStaleLockError(key: string, token: bigint): StaleLockError {
  const text = `a later holder of ${formatKeys([key])} has fenced its work: token ${token} is refused; roll this transaction back`;
  return new StaleLockError(text, { keys: [key] });
}

export function createNoTransactionError(): TypeError {
  return new TypeError(
    "tx must be inside a transaction: begin one, wait until it has begun, and pass the handle on which it runs",
  );
}

/** serialization_failure, deadlock_detected, lock_not_available. */
const POSTGRES_CONFLICTS: readonly unknown[] = ["40001", "40P01", "55P03"];
/** ER_CHECKREAD, ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK. */
const MYSQL_CONFLICTS: readonly unknown[] = [1020, 1205, 1213];

type Test = (detail: ErrorDetail) => boolean;

const IS_CONFLICT: Readonly<Record<SqlDialect, Test>> = {
  postgres: (detail) => POSTGRES_CONFLICTS.includes(readSqlState(detail)),
  mysql: (detail) => MYSQL_CONFLICTS.includes(readMysqlNumber(detail)),
  sqlite: (detail) => readSqliteNumber(detail) === SQLITE_BUSY,
};

/** undefined_table; ER_NO_SUCH_TABLE; SQLite has no code for it. */
const IS_MISSING_TABLE: Readonly<Record<SqlDialect, Test>> = {
  postgres: (detail) => readSqlState(detail) === "42P01",
  mysql: (detail) => readMysqlNumber(detail) === 1146,
  sqlite: ({ message }) => /no such table/.test(String(message)),
};

/** Types what a caller can act on; every other error stays as it is. */
export function toFenceError(error: unknown, dialect: SqlDialect, keys: readonly string[], table: string): unknown {
  const details = listDetails(error);
  if (details.some(IS_MISSING_TABLE[dialect])) {
    const text = `the table ${table} does not exist: run the statements of fenceMigration(), or createFenceTable()`;
    return new StoreRefusedError(text, { keys, cause: error });
  }
  if (!details.some(IS_CONFLICT[dialect])) return error;
  const text = `the database could not order this transaction on ${formatKeys(keys)}: roll it back and run it again`;
  return new FenceConflictError(text, { keys, cause: error });
}
