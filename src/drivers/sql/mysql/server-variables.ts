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

export async function readVariables(connection: SqlConnection): Promise<ServerVariables> {
  const names = NAMES.map((name) => `'${name}'`).join(",");
  const { rows } = await connection.query(`SHOW VARIABLES WHERE Variable_name IN (${names})`);
  const values = new Map(rows.map((row) => [String(row.Variable_name), String(row.Value)]));
  const get = (name: string): string => values.get(name) ?? "";
  const version = (/^\d+(?:\.\d+)*/.exec(get("version"))?.[0] ?? "").split(".").map(Number);
  return {
    product: /mariadb/i.test(get("version") + get("version_comment")) ? "MariaDB" : "MySQL",
    version,
    get,
    isOn: (name) => /^(?:ON|1)$/i.test(get(name)),
  };
}

/** Settings of a session under which every statement does what its text says. */
const PLAIN_SETTINGS: readonly (readonly [name: string, value: string | number])[] = [
  // what a procedure keeps from its creation
  ["sql_mode", PROCEDURE_SQL_MODE],
  // else a query begins a transaction
  ["autocommit", 1],
  // else a query returns only so many rows
  ["sql_select_limit", "DEFAULT"],
];

/** Runs `work` in a session without settings of its user, and restores them. */
export async function withPlainSession<T>(connection: SqlConnection, work: () => Promise<T>): Promise<T> {
  // fails inside a transaction of the user, which autocommit = 1 and every CREATE would commit
  await connection.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
  const names = PLAIN_SETTINGS.map(([name]) => name);
  const { rows } = await connection.query(`SELECT ${names.map((name) => `@@session.${name} AS ${name}`).join(", ")}`);
  const [before = {}] = rows;
  await setSession(connection, PLAIN_SETTINGS);
  try {
    return await work();
  } finally {
    await setSession(
      connection,
      names.map((name) => [name, before[name] as string | number]),
    );
  }
}

function setSession(
  connection: SqlConnection,
  settings: readonly (readonly [name: string, value: string | number])[],
): Promise<unknown> {
  const isDefault = (value: unknown): boolean => value === "DEFAULT";
  const assignments = settings.map(([name, value]) => `SESSION ${name} = ${isDefault(value) ? value : "?"}`);
  const values = settings.map(([, value]) => value).filter((value) => !isDefault(value));
  return connection.query(`SET ${assignments.join(", ")}`, values);
}
