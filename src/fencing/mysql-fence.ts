/**
 * The fence on MariaDB and MySQL, in three trips, on MySQL two. Keys are sent in hexadecimal, so that the character set of
 * the connection does not matter. Text in a comment of the form M! runs on MariaDB only.
 */

import { areReadable, createUnreadableError } from "../drivers/sql/clients/mysql-protocol.ts";
import type { SqlRow } from "../drivers/sql/clients/types.ts";
import { toSqlHandle } from "./handles.ts";
import { SHARED_ROWS, toHex } from "./table.ts";
import type { FenceStep, FenceVerdict, SqlHandle } from "./types.ts";

const MS_PER_SECOND = 1_000;

/** Read with the lock, in the same trip. `before`: the user's time-out, `ours`: the one that an earlier fence has set. */
const SESSION = `/*M! , cast(@@in_transaction as char) as active,
  cast(@@session.idle_write_transaction_timeout as char) as current,
  cast(@holdfast_idle_before as char) as previous, cast(@holdfast_idle_set as char) as ours */`;

/** Without a limit of its own a query obeys the session's sql_select_limit, and 0 hides every row. */
const ONE_ROW = "limit 1";

export async function fenceMysql(handle: SqlHandle, step: FenceStep): Promise<FenceVerdict> {
  const row = step.isExclusive ? await lockAlone(handle, step) : await lockWithOthers(handle, step);
  // not known on MySQL
  if (row.active === "0") return "noTransaction";
  if (BigInt(row.token as string) > step.token) return "stale";
  if (!step.isExclusive) await raiseShared(handle, step);
  else if (!(await hasNoNewerShared(handle, step, row))) return "stale";
  if (step.idleMs > 0 && row.current !== undefined) await setIdleTimeout(handle, step, row);
  return "accepted";
}

/** Writes first: two transactions that lock a missing row by reading it would deadlock at their insertions. */
async function lockAlone(handle: SqlHandle, step: FenceStep): Promise<SqlRow> {
  await handle.query(
    `insert into ${step.table} (lock_key, slot, token, has_shared) values (unhex(?), 0, cast(? as signed), 0)
     on duplicate key update token = greatest(token, values(token))`,
    [toHex(step.key), String(step.token)],
  );
  return readFirstRow(handle, step, "for update");
}

async function lockWithOthers(handle: SqlHandle, step: FenceStep): Promise<SqlRow> {
  const row = await findFirstRow(handle, step, "lock in share mode", "and has_shared = 1");
  if (row !== undefined) return row;
  await handle.query(
    `insert into ${step.table} (lock_key, slot, token, has_shared) values (unhex(?), 0, 0, 1)
     on duplicate key update has_shared = 1`,
    [toHex(step.key)],
  );
  return readFirstRow(handle, step, "for update");
}

/** A locking read: under repeatable read a plain one could show an old snapshot, and would fix it for the user's reads. */
async function hasNoNewerShared(handle: SqlHandle, step: FenceStep, { shared }: SqlRow): Promise<boolean> {
  if (shared !== "1") return true;
  const { rows } = await handle.query(
    `select cast(slot as char) as slot from ${step.table}
     where lock_key = unhex(?) and slot > 0 and token > cast(? as signed) ${ONE_ROW} for update`,
    [toHex(step.key), String(step.token)],
  );
  return rows.length === 0;
}

async function raiseShared(handle: SqlHandle, step: FenceStep): Promise<void> {
  await handle.query(
    `insert into ${step.table} (lock_key, slot, token, has_shared)
     values (unhex(?), 1 + mod(connection_id(), ${SHARED_ROWS}), cast(? as signed), 0)
     on duplicate key update token = greatest(token, values(token))`,
    [toHex(step.key), String(step.token)],
  );
}

async function readFirstRow(handle: SqlHandle, step: FenceStep, lock: string): Promise<SqlRow> {
  return (await findFirstRow(handle, step, lock)) as SqlRow;
}

async function findFirstRow(
  handle: SqlHandle,
  { table, key }: FenceStep,
  lock: string,
  condition = "",
): Promise<SqlRow | undefined> {
  const { rows } = await handle.query(
    `select cast(token as char) as token, cast(has_shared as char) as shared ${SESSION} from ${table}
     where lock_key = unhex(?) and slot = 0 ${condition} ${ONE_ROW} ${lock}`,
    [toHex(key)],
  );
  if (!areReadable(rows)) throw createUnreadableError();
  return rows[0];
}

/**
 * In whole seconds, at least one. MariaDB has it for the session only, so the user's own value is kept in a variable of the
 * session, for the next fence and for restoreIdleTimeout().
 */
async function setIdleTimeout(handle: SqlHandle, { idleMs }: FenceStep, row: SqlRow): Promise<void> {
  const current = Number(row.current);
  const wasSetByFence = row.ours !== null && Number(row.ours) === current;
  const before = wasSetByFence ? Number(row.previous) : current;
  const left = Math.max(1, Math.floor(idleMs / MS_PER_SECOND));
  const wanted = before > 0 ? Math.min(before, left) : left;
  if (wanted === current) return;
  await handle.query(
    `set @holdfast_idle_before = ${before}, @holdfast_idle_set = ${wanted}, session idle_write_transaction_timeout = ${wanted}`,
  );
}

/**
 * MariaDB: gives the connection back the idle time-out that it had before fence(). Call it after the commit, before the
 * connection returns to its pool. Without it the session keeps the shorter time-out: it ends a later transaction of this
 * connection that has written and is idle for as long. Nothing happens on other databases, nor if no fence has set one.
 * @throws TypeError; the error of the library
 */
export async function restoreIdleTimeout(connection: unknown): Promise<void> {
  const handle = toSqlHandle(connection, undefined, "connection");
  if (handle.dialect !== "mysql") return;
  await handle.query(
    // an undefined variable would make the value text
    `set /*M! session idle_write_transaction_timeout = cast(if(
       @@session.idle_write_transaction_timeout <=> @holdfast_idle_set,
       @holdfast_idle_before,
       @@session.idle_write_transaction_timeout
     ) as unsigned), */ @holdfast_idle_set = null`,
  );
}
