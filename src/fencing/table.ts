/**
 * The table of fence(). It is no table of a driver: a row that a transaction of the user locks would block the renewals of
 * its own lock.
 *
 * Row 0 of a key has the highest token of an exclusive lock that has fenced. The rows from 1 on have the highest tokens of
 * readers and semaphore holders, each row those of a part of the connections, so that they do not wait for each other.
 * Rows are never deleted, and their tokens only rise.
 */

import { quoteIdentifier, toName } from "../drivers/sql/schema.ts";
import { dialectRule, toSqlHandle } from "./handles.ts";
import type { TableOptions } from "./options.ts";
import { validateTableOptions } from "./options.ts";
import type { SqlDialect, SqlHandle } from "./types.ts";

/** The rows of readers and semaphore holders per key: connections whose numbers differ modulo this do not share one. */
export const SHARED_ROWS = 64;

const COLUMNS: Readonly<Record<SqlDialect, string>> = {
  postgres: `(
  lock_key text collate "C" not null,
  slot smallint not null,
  token bigint not null,
  has_shared boolean not null,
  primary key (lock_key, slot)
) with (fillfactor = 70)`,
  mysql: `(
  lock_key varbinary(512) not null,
  slot smallint not null,
  token bigint not null,
  has_shared tinyint not null,
  primary key (lock_key, slot)
) engine = InnoDB`,
  sqlite: `(
  lock_key text not null,
  slot integer not null,
  token integer not null,
  has_shared integer not null,
  primary key (lock_key, slot)
) without rowid`,
};

/** Another process created it in the same moment: duplicate_table, duplicate_object (its type), unique_violation in the catalog. */
const CREATED_MEANWHILE: readonly unknown[] = ["42P07", "42710", "23505"];

/**
 * The statement that creates the table of fence(), for a migration of the user. It does nothing if the table exists.
 * The user of fence() needs the rights to SELECT, INSERT and UPDATE it.
 * @throws TypeError
 */
export function fenceMigration(dialect: SqlDialect, options: TableOptions = {}): string {
  validateTableOptions("fenceMigration", options);
  const columns = COLUMNS[dialect];
  if (columns === undefined) throw new TypeError(`dialect must be ${dialectRule(dialect)}`);
  return `create table if not exists ${toTableName(dialect, options)} ${columns};\n`;
}

/**
 * Creates the table of fence(), if it is missing. On MariaDB and MySQL this commits an open transaction, so one is refused.
 * @param db a handle as for fence(), or a pool
 * @throws TypeError
 */
export async function createFenceTable(
  db: unknown,
  options: TableOptions & { dialect?: SqlDialect } = {},
): Promise<void> {
  const { dialect, ...tableOptions } = options;
  validateTableOptions("createFenceTable", tableOptions);
  const handle = toSqlHandle(db, dialect, "db");
  if (handle.dialect === "mysql" && (await isInMysqlTransaction(handle))) {
    throw new TypeError("db must not be inside a transaction: creating a table would commit it");
  }
  try {
    await handle.query(fenceMigration(handle.dialect, tableOptions).replace(/;\n$/, ""));
  } catch (error) {
    if (!CREATED_MEANWHILE.includes((error as { readonly code?: unknown }).code)) throw error;
  }
}

async function isInMysqlTransaction(handle: SqlHandle): Promise<boolean> {
  if (handle.isInTransaction() === true) return true;
  const { rows } = await handle.query("select 1 as one /*M! , @@in_transaction as active */ limit 1");
  return Number(rows[0]?.active ?? 0) === 1;
}

/** Keys are sent in hexadecimal: the character set of the connection would make another key of their text. */
export function toHex(key: string): string {
  return Buffer.from(key).toString("hex");
}

/** The quoted name, with the schema if one was given. */
export function toTableName(dialect: SqlDialect, { prefix, schema }: TableOptions): string {
  const names = schema === undefined ? [toName("fences", prefix)] : [schema, toName("fences", prefix)];
  const quote = dialect === "mysql" ? quoteWithBackticks : quoteIdentifier;
  return names.map(quote).join(".");
}

function quoteWithBackticks(name: string): string {
  return `\`${name.replaceAll("`", "``")}\``;
}
