/**
 * A transaction that no setting of its session changes. Sessions are shared: other users of the pool, or of a pooler,
 * may have left settings in them under which a statement fails.
 *
 * Settings that change what a function does are set by the function itself (migration.ts, lock_buckets.sql), or it
 * refuses them (HF001).
 */

import type { CallConnection } from "../call.ts";
import { ANSWER_IN_TIME } from "../call.ts";
import type { Calls } from "../calls.ts";
import { insertPostgresValues } from "../clients/postgres-protocol.ts";
import type { SqlResult, SqlRow, SqlValue } from "../clients/types.ts";
import { READ_ONLY, readErrorCode, WRONG_SETTING } from "./errors.ts";

/**
 * Another isolation level or character set; transactions that only read; a role or user without rights; a short
 * statement_timeout.
 */
const SETTING_CODES: readonly string[] = [WRONG_SETTING, READ_ONLY, "42501", "57014"];
/** A standby refuses transactions that write. */
const NO_WRITES_IN_RECOVERY = "0A000";

/**
 * They end with the transaction. What the role, the database or the client's connection options say stays, except for
 * time-outs.
 */
const SETTINGS = `set local session authorization default;
set local role to default;
set local client_encoding = 'UTF8';
set transaction isolation level read committed, read write;
do $$ begin
  if pg_catalog.current_setting('default_transaction_read_only') operator(pg_catalog.=) 'on' then
    if exists (select from pg_catalog.pg_settings
      where name operator(pg_catalog.=) 'default_transaction_read_only' and reset_val operator(pg_catalog.=) 'on')
    then
      raise exception 'default_transaction_read_only is on' using errcode = '${READ_ONLY}';
    end if;
  end if;
end $$;`;

/** Whether a setting of the session may be the cause. */
export function isSettingError(error: unknown): boolean {
  return SETTING_CODES.includes(readErrorCode(error));
}

/**
 * Runs a statement in such a transaction. Several statements in one message are one transaction without `begin`, so it
 * takes one trip, and an error leaves nothing open. The server ends it when the call is given up.
 */
export async function queryPlain(
  connection: CallConnection,
  statement: string,
  values: readonly SqlValue[] = [],
): Promise<SqlResult> {
  const timeoutMs = Math.max(1, Math.floor(connection.remainingMs * ANSWER_IN_TIME));
  // literals contain ASCII only: the text of the message is read before the character set is changed
  const text = values.length === 0 ? statement : insertPostgresValues(statement, values);
  try {
    return await connection.query(`set local statement_timeout = ${timeoutMs};\n${SETTINGS}\n${text}`);
  } catch (error) {
    if (readErrorCode(error) !== NO_WRITES_IN_RECOVERY) throw error;
    throw Object.assign(new Error("the server is in recovery", { cause: error }), { code: READ_ONLY });
  }
}

/**
 * The first row of a query in such a transaction; null: there is none. By position: a client can have renamed the
 * columns.
 */
export async function readRow(
  calls: Calls,
  statement: string,
  names: readonly string[],
  values: readonly SqlValue[] = [],
): Promise<SqlRow | null> {
  const { rows } = await calls.run((connection) => queryPlain(connection, statement, values));
  const [row] = rows;
  if (row === undefined) return null;
  const columns = Object.values(row);
  return Object.fromEntries(names.map((name, index) => [name, columns[index]]));
}
