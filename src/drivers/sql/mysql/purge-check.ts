/** What keeps the server from purging the old versions of rows: for `holdfast doctor` and for warnings of open(). */

import type { Check } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import type { SqlConnection } from "../clients/types.ts";
import { NOW } from "./clock.ts";
import { readErrorNumber } from "./errors.ts";
import type { ServerVariables } from "./server-variables.ts";

/** A transaction that is open for longer counts. */
const MAX_OPEN_SECONDS = 300;
/**
 * Transactions whose old rows are not purged: more are left only if something keeps them, or if the server cannot
 * follow.
 */
const MAX_HISTORY = 100_000;

/**
 * At READ COMMITTED a transaction keeps old rows only while a statement runs. trx_started is in the time zone of the
 * server. The connection of a transaction that was prepared before a restart is 0.
 */
const READ_OLDEST = `select trx_mysql_thread_id as connection, user as user, seconds from (
  select trx_mysql_thread_id, timestampdiff(second, trx_started, convert_tz('1970-01-01' + interval ${NOW} microsecond, '+00:00', 'SYSTEM')) as seconds
  from information_schema.innodb_trx
  where trx_isolation_level not in ('READ COMMITTED', 'READ UNCOMMITTED') or trx_query is not null
) as transactions left join information_schema.processlist on id = trx_mysql_thread_id
where seconds > ${MAX_OPEN_SECONDS} order by seconds desc limit 1`;

const MYSQL_HISTORY =
  "select count as Value from information_schema.innodb_metrics where name = 'trx_rseg_history_len'";

/** One of the right PROCESS, and one of a table. */
const MISSING_RIGHT: readonly number[] = [1227, 1142];

interface PurgeCheck extends Check {
  readonly name: "purge";
}

export async function checkPurge(
  connection: Pick<SqlConnection, "query">,
  { product }: ServerVariables,
): Promise<PurgeCheck> {
  const name = "purge";
  /** null: only the right PROCESS shows it. */
  const read = async (text: string) => {
    try {
      return (await connection.query(text)).rows;
    } catch (error) {
      if (!MISSING_RIGHT.includes(readErrorNumber(error))) throw error;
      return null;
    }
  };
  const transactions = await read(READ_OLDEST);
  // every user may read that of MariaDB
  const isMariaDb = product === "MariaDB";
  const counts = await read(isMariaDb ? "show global status like 'Innodb_history_list_length'" : MYSQL_HISTORY);
  const count = counts?.[0]?.Value;
  const history = `old rows of ${count ?? "an unknown number of"} transactions are not purged yet`;
  const [oldest] = transactions ?? [];
  if (oldest !== undefined) {
    const session = `connection ${oldest.connection}${oldest.user === null ? "" : ` of user ${JSON.stringify(oldest.user)}`}`;
    return {
      status: "warn",
      name,
      message: `a transaction (${session}) is open for ${formatDuration(Number(oldest.seconds) * 1_000)}; ${history}, which makes busy keys slower`,
      hint: "commit or roll it back; idle_transaction_timeout of MariaDB ends idle ones",
    };
  }
  if (Number(count) > MAX_HISTORY) {
    const hint = "end transactions that are open for long: information_schema.innodb_trx shows them";
    return { status: "warn", name, message: `${history}, which makes busy keys slower`, hint };
  }
  if (count !== undefined) return { status: "ok", name, message: history };
  return { status: "unknown", name, message: "this user lacks the right PROCESS, which shows open transactions" };
}
