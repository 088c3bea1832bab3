/** Opens a file of SQLite with a library that is there. Nothing is loaded before. */

// as a whole: the banner of many bundles declares "createRequire", and a bundler may give an import its own name back
import nodeModule from "node:module";
import { StoreRefusedError } from "../../../errors.ts";
import { createMissingError, nullIfMissing } from "../../missing-library.ts";
import type { SqliteLike } from "./sqlite.ts";
import { adaptSqlite, BETTER_SQLITE3, BUN_SQLITE, LIBSQL, NODE_SQLITE } from "./sqlite.ts";
import type { SqliteDatabase } from "./types.ts";

/** Not a literal in import(): bundlers for Node would not find it. */
const BUN_MODULE: string = "bun:sqlite";

/**
 * Opens a database file, or ":memory:", with the first library of: bun:sqlite on Bun, node:sqlite, libsql,
 * better-sqlite3.
 * @throws StoreRefusedError if none is available
 */
export async function loadSqliteDatabase(path: string): Promise<SqliteDatabase> {
  if (process.versions.bun !== undefined) {
    const { Database } = (await import(/* webpackIgnore: true */ BUN_MODULE)) as BunSqliteModule;
    return adaptSqlite(new Database(path, { create: true, readwrite: true }), BUN_SQLITE);
  }
  const nodeSqlite = process.getBuiltinModule("node:sqlite" as "node:module") as unknown as
    | NodeSqliteModule
    | undefined;
  const NodeDatabase = nodeSqlite?.DatabaseSync ?? nodeSqlite?.Database;
  if (NodeDatabase !== undefined) return adaptSqlite(new NodeDatabase(path), NODE_SQLITE);
  const libsql = await importLibsql();
  if (libsql !== null) return adaptSqlite(new libsql.default(path), LIBSQL);
  rejectCrashingLibrary();
  const betterSqlite3 = await importBetterSqlite3();
  if (betterSqlite3 !== null) return adaptSqlite(new betterSqlite3.default(path, { timeout: 0 }), BETTER_SQLITE3);
  throw createMissingError("sqlite urls", ["libsql", "better-sqlite3"], "Node 22.13 or newer");
}

async function importLibsql(): Promise<SqliteModule | null> {
  try {
    return (await import("libsql" as string)) as SqliteModule;
  } catch (error) {
    return nullIfMissing("libsql", error);
  }
}

async function importBetterSqlite3(): Promise<SqliteModule | null> {
  try {
    return (await import("better-sqlite3" as string)) as SqliteModule;
  } catch (error) {
    return nullIfMissing("better-sqlite3", error);
  }
}

interface BunSqliteModule {
  readonly Database: new (path: string, options: object) => SqliteLike;
}

/** Node is to rename the class. */
interface NodeSqliteModule {
  readonly DatabaseSync?: new (path: string) => SqliteLike;
  readonly Database?: new (path: string) => SqliteLike;
}

interface SqliteModule {
  readonly default: new (path: string, options?: object) => SqliteLike;
}

/** better-sqlite3 13 ends the process on Node 20 as soon as it is used, so its version is read before it is loaded. */
function rejectCrashingLibrary(): void {
  const nodeMajor = Number.parseInt(process.versions.node, 10);
  if (nodeMajor >= 22) return;
  let version: string;
  try {
    ({ version } = nodeModule.createRequire(import.meta.url)("better-sqlite3/package.json") as { version: string });
  } catch {
    return; // not installed
  }
  if (Number.parseInt(version, 10) < 13) return;
  throw new StoreRefusedError(
    `better-sqlite3 ${version} crashes on Node ${nodeMajor}: npm install better-sqlite3@12, or npm install libsql`,
  );
}
