/**
 * Handles of the user's database or transaction: one small interface over the libraries and query builders that people use,
 * found by shape. Nothing is imported from a library that the user did not pass in.
 */

import { adaptLibrary } from "./libraries.ts";
import { adaptQueryBuilder } from "./query-builders.ts";
import type { SqlDialect, SqlHandle } from "./types.ts";

export type { SqlDialect, SqlHandle } from "./types.ts";

const DIALECTS: readonly unknown[] = ["postgres", "mysql", "sqlite"];

/** The rule of an option `dialect`. */
export const dialectRule = (value: unknown): string | null =>
  DIALECTS.includes(value) ? null : '"postgres", "mysql" or "sqlite"';

const ACCEPTED =
  "a transaction or a connection of pg, postgres, mysql2, mariadb, node:sqlite, libsql, better-sqlite3, bun:sqlite, Kysely, Drizzle, Knex, Prisma or TypeORM";

/**
 * Adapts a handle by its methods. The dialect is found in the same way, or taken from the argument.
 * @throws TypeError if the handle is none of those, or its dialect cannot be found
 */
export function toSqlHandle(handle: unknown, dialect?: SqlDialect, name = "tx"): SqlHandle {
  const adapted = adaptQueryBuilder(handle, dialect) ?? adaptLibrary(handle);
  if (adapted === null) throw new TypeError(`${name} must be ${ACCEPTED}`);
  if (adapted.dialect === null) {
    throw new TypeError(`the dialect of ${name} (${adapted.library}) is unknown: pass the option dialect`);
  }
  if (dialect !== undefined && adapted.dialect !== dialect) {
    throw new TypeError(`dialect must be "${adapted.dialect}", which ${name} (${adapted.library}) uses`);
  }
  return adapted as SqlHandle;
}
