/**
 * The adapters for SQLite libraries: node:sqlite, libsql, better-sqlite3 and bun:sqlite. They differ in how they bind
 * and return values: libsql ends the process on a boolean, and it and better-sqlite3 bind numbers as REAL. So integers
 * are bound and read as bigints everywhere.
 */

import { normalizeInteger } from "./integers.ts";
import { hasMethods, readMembers } from "./members.ts";
import type { SqliteDatabase, SqliteStatement, SqlRow, SqlValue } from "./types.ts";

/** What all four libraries have. */
export interface SqliteLike {
  prepare(text: string): SqliteStatementLike;
  exec(text: string): unknown;
  close(): unknown;
}

interface SqliteStatementLike {
  get(...values: never[]): unknown;
  all(...values: never[]): unknown;
  run(...values: never[]): unknown;
}

/** How a library differs from the others. */
interface Library {
  readonly name: string;
  /** Makes a statement return rows as objects, with integers as bigints. */
  configure(statement: SqliteStatementLike): void;
  /** libsql takes a single null or Uint8Array for the named parameters, unless it is in a list. */
  readonly takesList?: true;
  isInTransaction(database: SqliteLike): boolean | null;
  /** The result code of an error, basic or extended; undefined: it is none of SQLite. */
  readResultCode(error: object): unknown;
}

/** Another connection has locked the database, or its schema in a shared cache. */
const SQLITE_BUSY = 5;
const SQLITE_LOCKED_SHAREDCACHE = 262;

/** node:sqlite, of Node 22.13 and newer. */
export const NODE_SQLITE: Library = {
  name: "node:sqlite",
  configure(statement) {
    const { setReadBigInts, setReturnArrays } = statement as unknown as Partial<
      Record<string, (flag: boolean) => void>
    >;
    setReadBigInts?.call(statement, true);
    setReturnArrays?.call(statement, false);
  },
  isInTransaction: (database) => (database as { readonly isTransaction?: boolean }).isTransaction ?? null,
  readResultCode: (error) => (error as { readonly errcode?: unknown }).errcode,
};

const SAFE_INTEGERS: Omit<Library, "name" | "readResultCode"> = {
  configure: (statement) => (statement as unknown as { safeIntegers(isSafe: boolean): void }).safeIntegers(true),
  isInTransaction: (database) => (database as { readonly inTransaction?: boolean }).inTransaction ?? null,
};

/** libsql 0.5. */
export const LIBSQL: Library = {
  ...SAFE_INTEGERS,
  name: "libsql",
  takesList: true,
  readResultCode: (error) => (error as { readonly rawCode?: unknown }).rawCode,
};

/** better-sqlite3 12 and newer. */
export const BETTER_SQLITE3: Library = {
  ...SAFE_INTEGERS,
  name: "better-sqlite3",
  // its errors have the name of the code only: SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT
  readResultCode: ({ code = "" }: { readonly code?: string }) => (code.startsWith("SQLITE_BUSY") ? SQLITE_BUSY : code),
};

/** bun:sqlite. */
export const BUN_SQLITE: Library = {
  ...SAFE_INTEGERS,
  name: "bun:sqlite",
  readResultCode: (error) => (error as { readonly errno?: unknown }).errno,
};

/** @throws TypeError if it is not an open SQLite database, or not of a supported library */
export function adaptSqliteDatabase(database: unknown): SqliteDatabase {
  const members = readMembers(database);
  if (hasMethods(members, "prepare", "exec", "close")) {
    const sqlite = database as SqliteLike;
    if (hasMethods(members, "syncUntil") && typeof members.inTransaction === "boolean")
      return adaptSqlite(sqlite, LIBSQL);
    if (hasMethods(members, "pragma", "backup", "aggregate")) return adaptSqlite(sqlite, BETTER_SQLITE3);
    if (hasMethods(members, "createSession", "applyChangeset")) return adaptSqlite(sqlite, NODE_SQLITE);
    if (hasMethods(members, "query", "fileControl")) return adaptSqlite(sqlite, BUN_SQLITE);
  }
  throw new TypeError(
    "client must be an open SQLite database of node:sqlite, libsql (not libsql/promise), better-sqlite3 or bun:sqlite",
  );
}

export function adaptSqlite(database: SqliteLike, library: Library): SqliteDatabase {
  return {
    library: library.name,
    prepare: (text) => adaptStatement(database.prepare(text), library),
    exec: (text) => void database.exec(text),
    isInTransaction: () => library.isInTransaction(database),
    isBusyError(error) {
      if (typeof error !== "object" || error === null) return false;
      const code = library.readResultCode(error);
      if (typeof code !== "number") return false;
      return (code & 0xff) === SQLITE_BUSY || code === SQLITE_LOCKED_SHAREDCACHE;
    },
    close: () => void database.close(),
  };
}

function adaptStatement(statement: SqliteStatementLike, library: Library): SqliteStatement {
  library.configure(statement);
  const bind = (values: readonly SqlValue[]): never[] => {
    const bound = values.map(toBoundValue);
    return (library.takesList ? [bound] : bound) as never[];
  };
  return {
    get(...values) {
      const row = statement.get(...bind(values)) as SqlRow | null | undefined;
      return row ? normalizeRow(row) : null;
    },
    all: (...values) => (statement.all(...bind(values)) as readonly SqlRow[]).map(normalizeRow),
    run(...values) {
      const { changes } = statement.run(...bind(values)) as { readonly changes: number | bigint };
      return Number(changes);
    },
  };
}

function toBoundValue(value: SqlValue): bigint | number | string | Uint8Array | null {
  if (typeof value === "boolean") return value ? 1n : 0n;
  return Number.isSafeInteger(value) ? BigInt(value as number) : (value as number);
}

function normalizeRow(row: SqlRow): SqlRow {
  const normalized: Record<string, unknown> = {};
  for (const name of Object.keys(row)) {
    const value = row[name];
    if (typeof value === "bigint") normalized[name] = normalizeInteger(value);
    else normalized[name] = value instanceof ArrayBuffer ? new Uint8Array(value) : value;
  }
  return normalized;
}
