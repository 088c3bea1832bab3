/** What a MariaDB says about its named locks. It has no list of them: only the plugin metadata_lock_info shows one. */

import type { TestDatabase } from "./sql-database.ts";

/** The id of the connection that has the lock; null: it is free. */
export async function readHolder(query: TestDatabase["query"], name: string): Promise<string | null> {
  const [row] = await query(`select is_used_lock('${name}') as id`);
  return row?.id === null || row?.id === undefined ? null : String(row.id);
}

/** The connections that wait for a lock. */
export async function readLockWaiters(query: TestDatabase["query"]): Promise<string[]> {
  const rows = await query("select id from information_schema.processlist where state = 'User lock'");
  return rows.map(({ id }) => String(id));
}

/** The connections of all others. */
export async function countOtherConnections(query: TestDatabase["query"]): Promise<number> {
  const rows = await query(
    "select count(*) as n from information_schema.processlist where id <> connection_id() and user not in ('system user', 'event_scheduler')",
  );
  return Number(rows[0]?.n);
}
