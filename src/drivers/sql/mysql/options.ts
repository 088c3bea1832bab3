/** The options of the driver for MariaDB and MySQL. */

import { validateOptions } from "../../../util/validate.ts";
import { warningNamesRule } from "../../warnings.ts";
import type { SqlOptions } from "../options.ts";
import { SQL_OPTION_RULES } from "../options.ts";
import { DEFAULT_PREFIX, prefixRule } from "../schema.ts";

/** A client for MariaDB or MySQL: a pool or a connection of mysql2 or mariadb. */
export type MysqlClient = object;

/** Options of `mysql()`. */
export interface MysqlOptions extends SqlOptions {
  /**
   * The database of the tables and procedures; it must exist. Clients with the same database and prefix, on the same
   * server, see each other's locks. Default: the database of the client's connections.
   */
  readonly database?: string;
  /** Warnings that `open()` leaves out, by the names that `holdfast doctor` shows. Default: none. */
  readonly silenceWarnings?: readonly MysqlWarning[];
}

/** Where the tables and procedures are. */
export interface MysqlLocation {
  /** null: the database of the connection, or that of a procedure. */
  readonly database: string | null;
  readonly prefix: string;
}

const WARNING_NAMES = [
  "version",
  "role",
  "durability",
  "cluster",
  "connections",
  "purge",
  "leftovers",
  "guardDataLoss",
] as const;

/** The name of a warning: what `silenceWarnings` takes and `holdfast doctor` shows. */
export type MysqlWarning = (typeof WARNING_NAMES)[number];

const MAX_NAME_LENGTH = 64;

const databaseRule = (value: unknown): string | null =>
  typeof value === "string" && /^[^\p{Cc}/\\.]{1,64}$/u.test(value) && !value.endsWith(" ")
    ? null
    : `1 to ${MAX_NAME_LENGTH} characters without control characters, "/", "\\" and "."`;

/** @throws TypeError naming the invalid option */
export function validateMysqlOptions(options: MysqlOptions): void {
  validateOptions("mysql", options, {
    ...SQL_OPTION_RULES,
    database: databaseRule,
    silenceWarnings: warningNamesRule(WARNING_NAMES),
  });
}

/** @throws TypeError naming the invalid option */
export function validateLocation(location: { readonly database?: string; readonly prefix?: string }): void {
  validateOptions("mysqlMigration", location, { database: databaseRule, prefix: prefixRule });
}

export function resolveLocation({
  database,
  prefix = DEFAULT_PREFIX,
}: {
  readonly database?: string;
  readonly prefix?: string;
}): MysqlLocation {
  return { database: database ?? null, prefix };
}
