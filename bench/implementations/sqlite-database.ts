/** A file of SQLite with the library and the settings that our driver chooses for a path. */

import Database from "libsql";

interface SqliteStatement {
  run(...values: readonly unknown[]): { readonly changes: number | bigint };
}

interface SqliteDatabase {
  prepare(text: string): SqliteStatement;
  exec(text: string): unknown;
  close(): unknown;
}

type SqliteClass = new (path: string) => SqliteDatabase;

/** The path of "sqlite:/PATH". */
export function sqlitePath(address: string): string {
  return address.slice("sqlite:".length);
}

/** node:sqlite where Node has it, else libsql. */
export async function openSqliteDatabase(path: string): Promise<SqliteDatabase> {
  const nodeSqlite = process.getBuiltinModule("node:sqlite" as "node:module") as unknown as
    | { readonly DatabaseSync: SqliteClass }
    | undefined;
  return configure(nodeSqlite === undefined ? openLibsql(path) : new nodeSqlite.DatabaseSync(path));
}

/** For a library that knows better-sqlite3 only, which libsql imitates. */
export function openLibsql(path: string): SqliteDatabase {
  return configure(new Database(path) as SqliteDatabase);
}

function configure(database: SqliteDatabase): SqliteDatabase {
  database.exec("pragma busy_timeout = 5000; pragma journal_mode = wal; pragma synchronous = full");
  return database;
}
