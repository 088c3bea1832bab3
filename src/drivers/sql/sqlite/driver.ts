/** The driver for SQLite. ../driver.ts is what all databases have in common, dialect.ts what is special to SQLite. */

import { resolve } from "node:path";
import type { Driver } from "../../../spi/driver.ts";
import { requireValid } from "../../../util/validate.ts";
import type { SqliteLike } from "../clients/sqlite.ts";
import { adaptSqliteDatabase } from "../clients/sqlite.ts";
import { createSqlDriver } from "../driver.ts";
import {
  BUCKET_COUNT,
  DEFAULT_PREFIX,
  expandNames,
  prefixRule,
  quoteIdentifier,
  SQLITE_LAYOUT_VERSION,
  splitStatements,
} from "../schema.ts";
import { createSqliteDialect } from "./dialect.ts";
import type { SqliteOptions } from "./options.ts";
import { validatePath, validateSqliteOptions } from "./options.ts";
import SCHEMA from "./sql/schema.sql";
import { FILL_BUCKETS, WRITE_LAYOUT } from "./statements.ts";

export type { GuardDataLossOptions } from "../../data-loss-guard.ts";
export type { SqliteLike } from "../clients/sqlite.ts";
export type { SqliteOptions, SqliteWarning } from "./options.ts";

/**
 * Creates a driver for a file of SQLite (3.42 or newer), which the processes of one machine share.
 * `database`: the path of a file, created readable for its owner only, for a connection of the driver's own (with WAL
 * and synchronous FULL); or an open handle of node:sqlite, libsql, better-sqlite3 or bun:sqlite, whose settings stay as
 * they are and which the driver never closes.
 * @throws TypeError naming the argument if the path, the handle or an option is invalid
 */
export function sqlite(database: string | SqliteLike, options: SqliteOptions = {}): Driver {
  validateSqliteOptions(options);
  if (typeof database === "string") {
    validatePath(database);
    // now: the program may change its folder before the file is opened, or opened again
    const path = resolve(database);
    return createSqlDriver(createSqliteDialect({ kind: "path", path }, options), options);
  }
  adaptSqliteDatabase(database);
  return createSqlDriver(createSqliteDialect({ kind: "handle", handle: database }, options), options);
}

/**
 * The statements that `open()` runs to create the tables, for those who create them by migrations (`createTables:
 * false`).
 * @throws TypeError if the prefix is invalid
 */
export function sqliteMigration({ prefix = DEFAULT_PREFIX }: { readonly prefix?: string } = {}): string {
  requireValid(prefix, "prefix", prefixRule);
  const statements = [
    ...splitStatements(SCHEMA),
    FILL_BUCKETS.replace("?", String(BUCKET_COUNT)),
    WRITE_LAYOUT.replace("?", String(SQLITE_LAYOUT_VERSION)),
  ];
  return statements.map((text) => `${expandNames(text, prefix, quoteIdentifier, SQLITE_LAYOUT_VERSION)};\n`).join("");
}
