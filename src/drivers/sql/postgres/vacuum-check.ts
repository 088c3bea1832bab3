/**
 * What keeps the server from removing the old versions of rows, which make busy keys slower: for `holdfast doctor` and
 * for warnings of open().
 */

import type { Check } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import type { Calls } from "../calls.ts";
import type { SqlRow } from "../clients/types.ts";
import { readErrorCode } from "./errors.ts";
import { readRow } from "./plain-transaction.ts";

/** A transaction that is open for longer counts. */
const MAX_OPEN_SECONDS = 300;
/**
 * The same for what has no time that this role may read: slots, standbys, transactions of others. A busy key has a
 * thousand pages then.
 */
const MAX_TRANSACTIONS = 100_000;

/**
 * Rows of tables are kept for a number of a transaction in any database, since the snapshots here begin with it; for a
 * snapshot of this database, unless it is VACUUM's; for a standby's; and for the xmin of a slot. (Its catalog_xmin
 * keeps rows of the catalogs only.) Snapshots that began while another transaction was open are as old as its number,
 * so the number decides between them.
 */
const READ_OLDEST = `select kind, pid, name, transactions, seconds from (
  select case when standby.pid is null then 'transaction' else 'standby' end as kind, session.pid, session.application_name as name,
      greatest(pg_catalog.age(session.backend_xmin), pg_catalog.age(session.backend_xid)) as transactions,
      pg_catalog.age(session.backend_xid) as own_transactions,
      pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) session.xact_start)::int as seconds
    from pg_catalog.pg_stat_activity session
    left join pg_catalog.pg_stat_replication standby on standby.pid operator(pg_catalog.=) session.pid
    where (session.backend_xid is not null
        or session.backend_xmin is not null
          and (standby.pid is not null or session.datname operator(pg_catalog.=) pg_catalog.current_database()))
      and not exists (select from pg_catalog.pg_stat_progress_vacuum vacuum where vacuum.pid operator(pg_catalog.=) session.pid)
  union all
  select 'prepared', null, owner::text, pg_catalog.age(transaction), pg_catalog.age(transaction),
      pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) prepared)::int
    from pg_catalog.pg_prepared_xacts
  union all
  select 'slot', active_pid, slot_name::text, pg_catalog.age(xmin), null, null
    from pg_catalog.pg_replication_slots
) as held
where case when seconds is null then transactions operator(pg_catalog.>) ${MAX_TRANSACTIONS}
  else seconds operator(pg_catalog.>) ${MAX_OPEN_SECONDS} end
order by transactions desc, own_transactions desc nulls last
limit 1`;
const NAMES: readonly string[] = ["kind", "pid", "name", "transactions", "seconds"];

/** The error codes of a view that the role may not read, or that a server of another make lacks. */
const NOT_READABLE = /^42/;

interface VacuumCheck extends Check {
  readonly name: "vacuum";
}

export async function checkVacuum(calls: Calls): Promise<VacuumCheck> {
  const name = "vacuum";
  let oldest: SqlRow | null;
  try {
    oldest = await readRow(calls, READ_OLDEST, NAMES);
  } catch (error) {
    if (!NOT_READABLE.test(readErrorCode(error))) throw error;
    return { status: "unknown", name, message: "this role may not read what keeps old versions of rows" };
  }
  if (oldest === null) return { status: "ok", name, message: "nothing keeps old versions of rows for long" };
  const { what, hint } = describeHolder(oldest);
  const message = `${what} keeps the old versions of rows of the last ${oldest.transactions} transactions, which makes busy keys slower`;
  return { status: "warn", name, message, hint };
}

/**
 * Never the text of a query, nor the name of a prepared transaction: they may contain secrets of other applications.
 */
function describeHolder({ kind, pid, name, seconds }: SqlRow): { readonly what: string; readonly hint: string } {
  const session = pid === null ? "" : ` (pid ${pid})`;
  const quotedName = name === null || name === "" ? "" : ` ${JSON.stringify(name)}`;
  const openText = seconds === null ? "" : `, open for ${formatDuration(Number(seconds) * 1_000)},`;
  switch (kind) {
    case "slot":
      return {
        what: `the replication slot${quotedName}${session}`,
        hint: "drop it if it is unused, or end the long queries of its standby",
      };
    case "standby":
      return {
        what: `the standby${quotedName}${session}`,
        hint: "end its long queries, or set hot_standby_feedback = off there",
      };
    case "prepared":
      return {
        what: `a prepared transaction of role${quotedName}${openText}`,
        hint: "commit prepared or rollback prepared: pg_prepared_xacts shows it",
      };
    default:
      return {
        what: `a transaction${quotedName === "" ? "" : ` of${quotedName}`}${session}${openText}`,
        hint: "end it, and set idle_in_transaction_session_timeout if it was idle",
      };
  }
}
