/**
 * Fencing inside the transaction of the user: fence() orders the commits of holders by their tokens, whatever the store of
 * the locks has done.
 *
 * Invariant, per key and table: a transaction that fenced with token T commits only if no transaction has committed before
 * it that fenced with a higher token and that excludes it; two transactions exclude each other unless both hold the key as
 * readers or semaphore holders. It holds because
 * (1) an exclusive holder locks row 0 of the key for itself and the others lock it together, until their transactions end:
 *     so no two transactions that exclude each other are open after their fences at the same time;
 * (2) each of them, under that lock, raises a token in the table in the same transaction (row 0, or its shared row);
 * (3) an exclusive holder then finds no higher token in any row, the others none in row 0, in the newest committed rows
 *     whatever the isolation level is: by locking reads and conditional writes, never by a plain read.
 * The same token again is accepted: several transactions of one grant.
 */

import type { LockGrant } from "../client/lock.ts";
import { adaptSqliteDatabase } from "../drivers/sql/clients/sqlite.ts";
import type { SqliteDatabase } from "../drivers/sql/clients/types.ts";
import { listDetails } from "./database-errors.ts";
import { createNoTransactionError, createStaleLockError, toFenceError } from "./errors.ts";
import { toSqlHandle } from "./handles.ts";
import { querySqlite } from "./libraries.ts";
import type { FencedLock } from "./locks.ts";
import { readGrants } from "./locks.ts";
import { fenceMysql } from "./mysql-fence.ts";
import type { FenceOptions } from "./options.ts";
import { validateFenceOptions } from "./options.ts";
import { fencePostgres } from "./postgres-fence.ts";
import { createSqliteFence } from "./sqlite-fence.ts";
import { toTableName } from "./table.ts";
import type { FenceStep, FenceVerdict, SqlHandle } from "./types.ts";

/** The longest time-out of PostgreSQL, 24 days: a lease may be longer. */
const MAX_IDLE_MS = 2 ** 31 - 1;

/**
 * The first statement of a transaction that must not commit if the lock was lost. Once a later holder has fenced, this
 * rejects; and the next holder's fence waits until this transaction has ended.
 * @param tx the transaction, as its library or query builder gives it
 * @throws StaleLockError if a later holder has fenced: roll back; FenceConflictError if the database could not order the
 *   transaction: roll back and run it again; LockLostError if the lock is known to be lost, UnsupportedError if its store has
 *   no tokens, TypeError if an argument is wrong or no transaction is open: then nothing was sent, unless only the database
 *   could tell that no transaction is open; StoreRefusedError if the table is missing; or the error of the library
 */
export async function fence(tx: unknown, lock: FencedLock, options: FenceOptions = {}): Promise<void> {
  validateFenceOptions(options);
  const handle = toSqlHandle(tx, options.dialect);
  const grants = readGrants(lock);
  if (handle.isInTransaction() === false) throw createNoTransactionError();
  if (options.idleTimeout !== false) handle.expectEndOfSession?.();
  const run = { postgres: fencePostgres, mysql: fenceMysql, sqlite: fenceSqlite }[handle.dialect];
  for (const grant of grants) {
    const step = toStep(handle.dialect, grant, lock, options);
    const verdict = await run(handle, step).catch((error: unknown) => {
      throw toFenceError(error, handle.dialect, [grant.key], step.table);
    });
    requireAccepted(verdict, grant);
  }
}

/**
 * fence() for the synchronous transactions of SQLite libraries, which a promise would leave too early.
 * @param db an open database of node:sqlite, libsql, better-sqlite3 or bun:sqlite, inside a transaction
 * @throws as fence() rejects
 */
export function fenceSync(db: unknown, lock: FencedLock, options: FenceOptions = {}): void {
  validateFenceOptions(options);
  const database = adaptSqliteDatabase(db);
  const grants = readGrants(lock);
  if (database.isInTransaction() !== true) requireSqliteTransaction(database);
  for (const grant of grants) {
    const step = toStep("sqlite", grant, lock, options);
    const { text, values } = createSqliteFence(step);
    let verdict: FenceVerdict;
    try {
      verdict = querySqlite(database, text, values).rows.length > 0 ? "accepted" : "stale";
    } catch (error) {
      throw toFenceError(error, "sqlite", [grant.key], step.table);
    }
    requireAccepted(verdict, grant);
  }
}

async function fenceSqlite(handle: SqlHandle, step: FenceStep): Promise<FenceVerdict> {
  if (handle.isInTransaction() === null && (await canBegin(() => handle.query("begin")))) {
    await rollBack(handle);
    return "noTransaction";
  }
  const { text, values } = createSqliteFence(step);
  const { rows } = await handle.query(text, values);
  return rows.length > 0 ? "accepted" : "stale";
}

/** A pool that takes back a connection inside a transaction may have ended that one already. */
async function rollBack(handle: SqlHandle): Promise<void> {
  try {
    await handle.query("rollback");
  } catch (error) {
    if (!isErrorAbout(error, /no transaction is active/)) throw error;
  }
}

/** SQLite refuses to begin a transaction inside another one: that tells where the library does not. */
async function canBegin(begin: () => Promise<unknown>): Promise<boolean> {
  try {
    await begin();
    return true;
  } catch (error) {
    if (isNestedError(error)) return false;
    throw error;
  }
}

/** The same, synchronously. */
function requireSqliteTransaction(database: SqliteDatabase): void {
  try {
    database.exec("begin");
  } catch (error) {
    if (isNestedError(error)) return;
    throw error;
  }
  database.exec("rollback");
  throw createNoTransactionError();
}

function isNestedError(error: unknown): boolean {
  return isErrorAbout(error, /within a transaction/);
}

function isErrorAbout(error: unknown, subject: RegExp): boolean {
  return listDetails(error).some(({ message }) => subject.test(String(message)));
}

function toStep(
  dialect: SqlHandle["dialect"],
  { storeKey, token, isExclusive }: LockGrant,
  lock: FencedLock,
  options: FenceOptions,
): FenceStep {
  const idleMs = options.idleTimeout === false ? 0 : Math.max(1, Math.min(Math.floor(lock.remainingMs), MAX_IDLE_MS));
  return { table: toTableName(dialect, options), key: storeKey, token, isExclusive, idleMs };
}

function requireAccepted(verdict: FenceVerdict, { key, token }: LockGrant): void {
  if (verdict === "noTransaction") throw createNoTransactionError();
  if (verdict === "stale") throw createStaleLockError(key, token);
}
