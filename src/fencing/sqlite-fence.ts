/** The fence on SQLite: one statement. It has one writer at a time, so the row of readers and semaphore holders is one, too. */

import type { SqlValue } from "../drivers/sql/clients/types.ts";
import type { FenceStep } from "./types.ts";

/** It returns a row if the holder is accepted. */
export function createSqliteFence(step: FenceStep): { readonly text: string; readonly values: readonly SqlValue[] } {
  const { table, key, isExclusive } = step;
  const token = String(step.token);
  // an exclusive holder must follow all others, another one only exclusive holders
  const [slot, rival] = isExclusive ? ["0", "slot = 1"] : ["1", "slot = 0"];
  return {
    text: `insert into ${table} (lock_key, slot, token, has_shared)
      select ?, ${slot}, cast(? as integer), 0
      where not exists (select 1 from ${table} where lock_key = ? and ${rival} and token > cast(? as integer))
      on conflict (lock_key, slot) do update set token = max(token, excluded.token)
      where ${isExclusive ? "token <= excluded.token" : "true"}
      returning slot`,
    values: [key, token, key, token],
  };
}
