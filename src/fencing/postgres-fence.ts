/** The fence on PostgreSQL. One trip for an exclusive lock on a key that had no readers, two otherwise. */

import type { SqlRow } from "../drivers/sql/clients/types.ts";
import { SHARED_ROWS, toHex } from "./table.ts";
import type { FenceStep, FenceVerdict, SqlHandle } from "./types.ts";

/** The row of this connection. Behind a pooler it is that of the server's connection, which no other transaction has. */
const OWN_SLOT = `1 + pg_backend_pid() % ${SHARED_ROWS}`;

/**
 * $2 is the token, $3 the time-out in milliseconds or 0. A shorter time-out of the user stays. Both settings end with the
 * transaction. The mark shows whether a transaction is open: without one it ends with this statement. All types are those that
 * the operators of pg_catalog have: one for other types, in a schema of the search_path, could be another role's.
 */
const SETTINGS = `
  set_config('holdfast.fence', $2::text, true) as mark,
  case
    when $3::text::int > 0 and not exists (
      select from (select 1000::numeric * extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval)::numeric) s(ms)
      where ms between 1::numeric and $3::text::numeric
    ) then set_config('idle_in_transaction_session_timeout', $3::text, true)
  end as idle`;

/** $1 is the key in hexadecimal: in a session with another client_encoding its text would be another key. */
const KEY = "pg_catalog.convert_from(pg_catalog.decode($1::text, 'hex'), 'UTF8')";

export async function fencePostgres(handle: SqlHandle, step: FenceStep): Promise<FenceVerdict> {
  const isAccepted = step.isExclusive ? await fenceExclusive(handle, step) : await fenceShared(handle, step);
  if (!isAccepted) return "stale";
  return (await isInTransaction(handle, step)) ? "accepted" : "noTransaction";
}

/** The conditional write waits for the transactions that have fenced before, and compares with what they committed. */
async function fenceExclusive(handle: SqlHandle, step: FenceStep): Promise<boolean> {
  const row = await queryRow(
    handle,
    step,
    `insert into ${step.table} as f (lock_key, slot, token, has_shared) values (${KEY}, 0, $2::text::bigint, false)
     on conflict (lock_key, slot) do update set token = excluded.token where f.token <= excluded.token
     returning f.has_shared::text as shared, ${SETTINGS}`,
  );
  if (row === undefined) return false;
  if (row.shared !== "true") return true;
  // a statement of its own, with a snapshot from after the lock; the aggregate has every row locked, which under repeatable
  // read detects changes since the snapshot: a condition on the token would skip rows by their old tokens
  const { rows } = await handle.query(
    `select max(s.token)::text as newest
     from (select token from ${step.table} where lock_key = ${KEY} and slot > 0 for update) s`,
    [toHex(step.key)],
  );
  return BigInt((rows[0]?.newest as string | null) ?? 0) <= step.token;
}

async function fenceShared(handle: SqlHandle, step: FenceStep): Promise<boolean> {
  const row = (await lockWithOthers(handle, step)) ?? (await addSharedRow(handle, step));
  if (row === undefined || BigInt(row.token as string) > step.token) return false;
  await handle.query(
    `insert into ${step.table} as f (lock_key, slot, token, has_shared)
     values (${KEY}, ${OWN_SLOT}, $2::text::bigint, false)
     on conflict (lock_key, slot) do update set token = greatest(f.token, excluded.token)`,
    [toHex(step.key), String(step.token)],
  );
  return true;
}

/** Nothing, if the row of this connection is missing. */
function lockWithOthers(handle: SqlHandle, step: FenceStep): Promise<SqlRow | undefined> {
  return queryRow(
    handle,
    step,
    `select f.token::text as token, ${SETTINGS} from ${step.table} f
     where f.lock_key = ${KEY} and f.slot = 0 and f.has_shared
       and exists (select from ${step.table} s where s.lock_key = ${KEY} and s.slot = ${OWN_SLOT})
     for share of f`,
  );
}

/**
 * The first fence of a connection on a key will insert a row, which an exclusive holder with an older snapshot would not
 * see. So it writes row 0, too: then that holder's write of row 0 fails with a serialization error.
 */
function addSharedRow(handle: SqlHandle, step: FenceStep): Promise<SqlRow | undefined> {
  return queryRow(
    handle,
    step,
    `insert into ${step.table} as f (lock_key, slot, token, has_shared) values (${KEY}, 0, 0, true)
     on conflict (lock_key, slot) do update set has_shared = true where f.token <= $2::text::bigint
     returning f.token::text as token, ${SETTINGS}`,
  );
}

async function queryRow(handle: SqlHandle, step: FenceStep, text: string): Promise<SqlRow | undefined> {
  const { rows } = await handle.query(text, [toHex(step.key), String(step.token), String(step.idleMs)]);
  return rows[0];
}

/** Asks the database only if the library does not know. */
async function isInTransaction(handle: SqlHandle, { token }: FenceStep): Promise<boolean> {
  const known = handle.isInTransaction();
  if (known !== null) return known;
  const { rows } = await handle.query("select current_setting('holdfast.fence', true) as mark");
  return rows[0]?.mark === String(token);
}
