/** The errors of fence(), and how those of a database become them. */

import type { LockErrorDetails } from "../errors.ts";
import { formatKeys, LockError, StoreRefusedError } from "../errors.ts";

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

/** serialization_failure, deadlock_detected, lock_not_available of PostgreSQL. */
const CONFLICT_STATES: readonly unknown[] = ["40001", "40P01", "55P03"];
/** ER_CHECKREAD, ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK of MariaDB and MySQL. */
const CONFLICT_NUMBERS: readonly unknown[] = [1020, 1205, 1213];
/** undefined_table; ER_NO_SUCH_TABLE. */
const MISSING_TABLE: readonly unknown[] = ["42P01", 1146];
const SQLITE_BUSY = 5;
/** Where libraries keep the error of the database inside their own. */
const INNER = ["cause", "driverError", "originalError", "meta", "driverAdapterError"] as const;
const MAX_DEPTH = 6;

/** Types what a caller can act on; every other error stays as it is. */
export function toFenceError(error: unknown, keys: readonly string[], table: string): unknown {
  const details = listDetails(error);
  if (details.some(isMissingTable)) {
    const text = `the table ${table} does not exist: run the statements of fenceMigration(), or createFenceTable()`;
    return new StoreRefusedError(text, { keys, cause: error });
  }
  if (!details.some(isConflict)) return error;
  const text = `the database could not order this transaction on ${formatKeys(keys)}: roll it back and run it again`;
  return new FenceConflictError(text, { keys, cause: error });
}

/** What libraries say about an error. */
type Detail = Readonly<Record<string, unknown>>;

function isMissingTable({ code, originalCode, errno, message }: Detail): boolean {
  return (
    [code, originalCode, errno].some((value) => MISSING_TABLE.includes(value)) || /no such table/.test(String(message))
  );
}

function isConflict({ code, originalCode, errno, errcode, rawCode }: Detail): boolean {
  const codes = [code, originalCode, errno];
  if (codes.some((value) => CONFLICT_STATES.includes(value) || CONFLICT_NUMBERS.includes(value))) return true;
  if (typeof code === "string" && code.startsWith("SQLITE_BUSY")) return true;
  // node:sqlite and libsql have the number, extended by a subcode
  return [errcode, rawCode].some((value) => typeof value === "number" && (value & 0xff) === SQLITE_BUSY);
}

/** The error and those inside it, outermost first. */
export function listDetails(error: unknown): Detail[] {
  const details: Detail[] = [];
  let level: unknown[] = [error];
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const objects = level.filter((value): value is Detail => typeof value === "object" && value !== null);
    details.push(...objects);
    level = objects.flatMap((object) => INNER.map((name) => object[name]));
  }
  return details;
}
