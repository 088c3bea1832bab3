/** Handles of database libraries: pg, postgres.js, mysql2, mariadb, and the libraries for SQLite. */

import type { Emitter } from "../drivers/sql/clients/emitter.ts";
import { ignoreErrors } from "../drivers/sql/clients/emitter.ts";
import type { Members } from "../drivers/sql/clients/members.ts";
import { hasMethods, readMembers } from "../drivers/sql/clients/members.ts";
import { insertPostgresValues } from "../drivers/sql/clients/postgres-protocol.ts";
import { adaptSqliteDatabase } from "../drivers/sql/clients/sqlite.ts";
import type { SqliteDatabase, SqlResult, SqlValue } from "../drivers/sql/clients/types.ts";
import type { AdaptedHandle } from "./adapting.ts";
import { isWrite, returnsRows, toBuffer, toReturnedRows, toSqlResult } from "./adapting.ts";

type Query = (statement: unknown, values?: unknown) => unknown;

/** null: it is none of these libraries. */
export function adaptLibrary(handle: unknown): AdaptedHandle | null {
  const members = readMembers(handle);
  if (typeof handle === "function") return hasMethods(members, "unsafe") ? adaptPostgresJs(members) : null;
  if (hasMethods(members, "prepare", "exec", "close")) return adaptSqlite(adaptSqliteDatabase(handle));
  if (!hasMethods(members, "query")) return null;
  // the callback form of mysql2; its promise form uses the same connection
  if (hasMethods(members, "promise", "format", "escape"))
    return adaptMysql2((members.promise as () => Members).call(handle));
  if (hasMethods(members, "batch")) return adaptMariadb(members);
  if (hasMethods(members, "execute", "escape", "format")) return adaptMysql2(members);
  if (hasMethods(members, "connect", "end", "on", "listeners")) return adaptPg(members);
  return null;
}

/** A Client, a client of a pool, or the Pool. */
function adaptPg(client: Members): AdaptedHandle {
  const isPool = typeof client.totalCount === "number";
  return {
    dialect: "postgres",
    library: "pg",
    query: async (text, values = []) => toSqlResult(await call(client, "query", { text, values: [...values] })),
    isInTransaction() {
      if (isPool) return false;
      // since pg 8.19; "E" is a failed transaction
      const status = hasMethods(client, "getTransactionStatus") ? call(client, "getTransactionStatus") : null;
      return typeof status === "string" ? status !== "I" : null;
    },
    expectEndOfSession: () => ignoreErrors(client as unknown as Emitter),
  };
}

/** The instance, a reserved connection, or the sql of a transaction. */
function adaptPostgresJs(sql: Members): AdaptedHandle {
  return {
    dialect: "postgres",
    library: "postgres.js",
    // as literals: it would write text for a column of jsonb as JSON once more
    query: async (text, values = []) => toSqlResult(await call(sql, "unsafe", insertPostgresValues(text, values))),
    isInTransaction() {
      if (hasMethods(sql, "savepoint")) return true;
      return hasMethods(sql, "begin") ? false : null;
    },
  };
}

/** The promise form of a connection or a pool. */
function adaptMysql2(connection: Members): AdaptedHandle {
  return adaptMysql("mysql2", connection, (query, text, values) =>
    query({ sql: text, values, rowsAsArray: false, nestTables: false, namedPlaceholders: false }),
  );
}

function adaptMariadb(connection: Members): AdaptedHandle {
  return adaptMysql("mariadb", connection, (query, text, values) =>
    query({ sql: text, rowsAsArray: false, nestTables: false, namedPlaceholders: false, metaAsArray: false }, values),
  );
}

function adaptMysql(
  library: string,
  connection: Members,
  send: (query: Query, text: string, values: unknown[]) => unknown,
): AdaptedHandle {
  const isPool = hasMethods(connection, "getConnection");
  return {
    dialect: "mysql",
    library,
    async query(text, values = []) {
      const query: Query = (...args) => call(connection, "query", ...args);
      return toSqlResult(await send(query, text, values.map(toBuffer)));
    },
    isInTransaction: () => (isPool ? false : null),
  };
}

function adaptSqlite(database: SqliteDatabase): AdaptedHandle {
  return {
    dialect: "sqlite",
    library: database.library,
    async query(text, values = []) {
      const run = (): SqlResult => querySqlite(database, text, values);
      const isAlone = database.library === "libsql" && database.isInTransaction() === false;
      return isAlone && isWrite(text) ? commitLibsqlWrite(database, run) : run();
    },
    isInTransaction: () => database.isInTransaction(),
  };
}

/**
 * After a prepared statement of libsql 0.5 has found the database locked, later writes outside of a transaction succeed but
 * are not committed before the garbage collector has found that statement. exec() finds the lock without leaving one.
 */
function commitLibsqlWrite(database: SqliteDatabase, write: () => SqlResult): SqlResult {
  database.exec("begin immediate");
  try {
    const result = write();
    database.exec("commit");
    return result;
  } catch (error) {
    if (database.isInTransaction() === true) database.exec("rollback");
    throw error;
  }
}

/** Runs a statement, for those who cannot wait for a promise. */
export function querySqlite(database: SqliteDatabase, text: string, values: readonly SqlValue[]): SqlResult {
  const statement = database.prepare(text);
  if (!returnsRows(text)) return { rows: [], affectedCount: statement.run(...values) };
  return toReturnedRows(text, statement.all(...values));
}

function call(members: Members, method: string, ...args: readonly unknown[]): unknown {
  return (members[method] as (...args: readonly unknown[]) => unknown).apply(members, args as unknown[]);
}
