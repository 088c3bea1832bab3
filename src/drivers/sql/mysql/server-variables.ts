/** Reads the settings of a server, and sets those of a session for a while. */

import type { SqlConnection } from "../clients/types.ts";
import { PROCEDURE_SQL_MODE } from "./migration.ts";

/** What prepare-database.ts and diagnostics.ts need. A server lacks those of other products. */
const NAMES: readonly string[] = [
  "version",
  "version_comment",
  "autocommit",
  "read_only",
  "super_read_only",
  "innodb_read_only",
  "log_bin",
  "binlog_format",
  "innodb_flush_log_at_trx_commit",
  "max_connections",
  "wsrep_on",
  "group_replication_group_name",
];

export interface ServerVariables {
  readonly product: "MariaDB" | "MySQL";
  readonly version: readonly number[];
  /** "": the server does not have it. */
  get(name: string): string;
  isOn(name: string): boolean;
}

export async function readVariables(connection: Pick<SqlConnection, "query">): Promise<ServerVariables> {
  const names = NAMES.map((name) => `'${name}'`).join(",");
  const { rows } = await connection.query(`show variables where Variable_name in (${names})`);
  const values = new Map(rows.map((row) => [String(row.Variable_name), String(row.Value)]));
  const get = (name: string): string => values.get(name) ?? "";
  const version = (/^\d+(?:\.\d+)*/.exec(get("version"))?.[0] ?? "").split(".").map(Number);
  return {
    product: /mariadb/i.test(get("version") + get("version_comment")) ? "MariaDB" : "MySQL",
    version,
    get,
    // read_only has other words than ON from MariaDB 12.0 on
    isOn: (name) => !/^(?:OFF|0|)$/i.test(get(name)),
  };
}

/** Settings of a session under which every statement does what its text says. */
const PLAIN_SETTINGS: readonly (readonly [name: string, value: string | number | bigint])[] = [
  // what a procedure keeps from its creation
  ["sql_mode", PROCEDURE_SQL_MODE],
  // else a query begins a transaction
  ["autocommit", 1],
  // behind a statement that waits for a table or a procedure, such as one behind a dump, all calls of other processes
  // wait, too
  ["lock_wait_timeout", 1],
  ["innodb_lock_wait_timeout", 4],
  // else a query returns only so many rows. DEFAULT would be that of the server, which may be one
  ["sql_select_limit", 18_446_744_073_709_551_615n],
];

/** Runs `work` in a session without settings of its user, and restores them. */
export async function withPlainSession<T>(
  connection: Pick<SqlConnection, "query">,
  work: () => Promise<T>,
): Promise<T> {
  // fails inside a transaction of the user, which autocommit = 1 and every CREATE would commit
  await connection.query("set transaction isolation level read committed");
  const names = PLAIN_SETTINGS.map(([name]) => name);
  const { rows } = await connection.query(
    `select ${names.map((name) => `@@session.${name} as ${name}`).join(", ")} limit 1`,
  );
  const [before = {}] = rows;
  await setSession(connection, PLAIN_SETTINGS);
  try {
    return await work();
  } finally {
    await setSession(
      connection,
      names.map((name) => [name, before[name] as string | number | bigint]),
    );
  }
}

function setSession(
  connection: Pick<SqlConnection, "query">,
  settings: readonly (readonly [name: string, value: string | number | bigint])[],
): Promise<unknown> {
  const assignments = settings.map(([name]) => `SESSION ${name} = ?`);
  const values = settings.map(([, value]) => value);
  return connection.query(`set ${assignments.join(", ")}`, values);
}
