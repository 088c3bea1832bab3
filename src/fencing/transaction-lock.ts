/**
 * A lock that lasts as long as a transaction of the user on PostgreSQL (pg_advisory_xact_lock): no table, no lease, no token.
 * The database releases it at commit and at rollback, so it cannot be lost before the work is undone.
 */

import type { LockNumber } from "../drivers/sql/advisory/lock-number.ts";
import { hashKey, toCall, toParameters } from "../drivers/sql/advisory/lock-number.ts";
import { UnsupportedError } from "../errors.ts";
import { validateKey } from "../util/keys.ts";
import { booleanRule, functionRule, validateOptions } from "../util/validate.ts";
import { createNoTransactionError, toFenceError } from "./errors.ts";
import { dialectRule, toSqlHandle } from "./handles.ts";
import type { SqlDialect, SqlHandle } from "./types.ts";

/** Options of lockInTransaction(). */
export interface TransactionLockOptions {
  /**
   * false: do not wait if another transaction or session has the lock. Default true: wait in the database, for at most the
   * lock_timeout of the session, by default for ever.
   */
  readonly wait?: boolean;
  /**
   * The advisory lock of a key: a bigint of 64 bits, or a pair of integers of 32 bits, as in pg_advisory_lock(bigint) and
   * pg_advisory_lock(int, int). For systems that use numbers already. Default: the first 64 bits of the key's SHA-256.
   */
  readonly keyToLock?: (key: string) => bigint | readonly [number, number];
  /** Required only if the handle does not show its dialect. */
  readonly dialect?: SqlDialect;
}

const WRONG_ISOLATION =
  "tx must be at read committed: at a higher isolation level it would read the state from before it had the lock";

/** The mark ends with the transaction; without one, with this statement. */
const SET_MARK = "pg_catalog.set_config('holdfast.lock', 'locked', true) as mark";
const READ_MARK = "select pg_catalog.current_setting('holdfast.lock', true) as mark";

/**
 * Locks a key until the end of this transaction. Transactions and sessions that lock the same number exclude each other; the
 * other drivers of this package do not take part.
 * @param tx the transaction on PostgreSQL, at read committed, as its library or query builder gives it. Lock before the
 *   transaction reads what the lock protects, and several keys in one order in all transactions. Not after a savepoint to which the
 *   transaction may be rolled back: that would end the lock
 * @returns true; false with `wait: false` if the lock was not free
 * @throws UnsupportedError on another database; FenceConflictError after a deadlock or the session's lock_timeout: roll back and
 *   run the transaction again; TypeError if an argument is wrong, or if tx is not in a transaction or not at read committed;
 *   StoreRefusedError if `keyToLock` returns no such number; or the error of the library
 */
export async function lockInTransaction(
  tx: unknown,
  key: string,
  options: TransactionLockOptions = {},
): Promise<boolean> {
  validateOptions("lockInTransaction", options, {
    wait: booleanRule,
    keyToLock: functionRule,
    dialect: dialectRule,
  });
  const { wait = true, keyToLock = hashKey, dialect } = options;
  validateKey(key);
  const handle = toSqlHandle(tx, dialect);
  if (handle.dialect !== "postgres") {
    throw new UnsupportedError(`lockInTransaction needs PostgreSQL: ${handle.dialect} has no lock of a transaction`, {
      keys: [key],
    });
  }
  if (handle.isInTransaction() === false) throw createNoTransactionError();
  const lock: LockNumber = keyToLock(key);
  const parameters = toParameters(key, lock);
  const isLocked = await takeLock(handle, parameters, wait).catch((error: unknown) => {
    throw toFenceError(error, handle.dialect, [key], "");
  });
  if (isLocked === null) throw new TypeError(WRONG_ISOLATION);
  if (!(await isInTransaction(handle))) throw createNoTransactionError();
  return isLocked;
}

/** null: the isolation level is too high, and the lock was not asked for. */
async function takeLock(handle: SqlHandle, parameters: readonly string[], wait: boolean): Promise<boolean | null> {
  const call = wait
    ? `${toCall("pg_advisory_xact_lock", parameters)}::text = ''`
    : toCall("pg_try_advisory_xact_lock", parameters);
  const { rows } = await handle.query(
    `select case when pg_catalog.current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
       then case when ${call} then 'locked' else 'busy' end else 'isolation' end as result, ${SET_MARK}`,
    parameters,
  );
  const result = rows[0]?.result;
  return result === "isolation" ? null : result === "locked";
}

/** Asks the database only if the library does not know. */
async function isInTransaction(handle: SqlHandle): Promise<boolean> {
  const known = handle.isInTransaction();
  if (known !== null) return known;
  return (await handle.query(READ_MARK)).rows[0]?.mark === "locked";
}
