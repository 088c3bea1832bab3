/** The libraries for SQLite beside libsql, as tests get them. */

import { test } from "vitest";
import type { SqliteLike } from "../../../src/drivers/sql/sqlite/driver.ts";
import type { InteropModule } from "../interop.ts";
import { loadBetterSqlite3 } from "../interop.ts";

/** A library, and how it opens a file. */
export interface SqliteLibrary {
  readonly name: string;
  readonly open: (path: string) => SqliteLike;
}

/** Those that can be had here. For each other one a skipped test says why. */
export function listOtherLibraries(): readonly SqliteLibrary[] {
  const libraries: SqliteLibrary[] = [];
  const betterSqlite3 = loadBetterSqlite3();
  if (typeof betterSqlite3 === "string") test.skip(betterSqlite3);
  else libraries.push({ name: "better-sqlite3", open: (path) => new betterSqlite3(path) });
  const { DatabaseSync }: InteropModule = process.getBuiltinModule("node:sqlite" as "node:module") ?? {};
  if (DatabaseSync === undefined) test.skip("node:sqlite: it needs Node 22.13 or newer");
  else libraries.push({ name: "node:sqlite", open: (path) => new DatabaseSync(path) });
  return libraries;
}
