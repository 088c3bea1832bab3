/** A row of the user's own table, with a column that counts its versions, as a store for optimistic(). */

import type { SqlRow, SqlValue } from "../drivers/sql/clients/types.ts";
import type { SqlDialect, SqlHandle } from "../fencing/handles.ts";
import { dialectRule, toSqlHandle } from "../fencing/handles.ts";
import { describeValue } from "../util/duration.ts";
import type { OptionRules } from "../util/validate.ts";
import { isObject, validateOptions } from "../util/validate.ts";
import { classifyDatabaseError, endsTransaction } from "./database-errors.ts";
import type { VersionedStore } from "./optimistic.ts";

/** Which row, in the user's own table. */
export interface VersionedRowOptions<Row extends object = SqlRow> {
  readonly table: string;
  /** Default: the one that the database finds for the table. On MariaDB and MySQL: the database. */
  readonly schema?: string | undefined;
  /** The columns that identify the row, with their values: its primary key, or another unique key. */
  readonly key: Partial<Row>;
  /** The column that counts the versions: an integer that is not null, and that every writer increments. Default "version". */
  readonly version?: (keyof Row & string) | undefined;
  /** The columns to read, besides the version. Default: all. */
  readonly columns?: readonly (keyof Row & string)[] | undefined;
  /** Of the handle, if it cannot be found out: "postgres", "mysql" (MariaDB, too) or "sqlite". */
  readonly dialect?: SqlDialect | undefined;
}

/** PostgreSQL cuts longer names off, and MariaDB refuses those of more than 64 characters. */
const MAX_NAME_BYTES = 63;

/** A question mark or a dollar sign would be taken for a parameter by some libraries. */
const NAME = /^[\p{L}_][\p{L}\p{M}\p{N}_ -]*$/u;

const nameRule = (value: unknown): string | null =>
  typeof value === "string" && NAME.test(value) && Buffer.byteLength(value) <= MAX_NAME_BYTES
    ? null
    : `a name of letters, digits, "_", "-" and spaces, at most ${MAX_NAME_BYTES} bytes long`;

const OPTION_RULES: OptionRules<VersionedRowOptions> = {
  table: nameRule,
  schema: nameRule,
  key: (value) => {
    if (!isObject(value) || Object.keys(value).length === 0) return "an object with at least one column";
    for (const [column, each] of Object.entries(value)) {
      requireColumnName(column, "key");
      // no row equals null
      if (each === null) throw new TypeError(`key.${column} must not be null`);
      requireSqlValue(each, `key.${column}`);
    }
    return null;
  },
  version: nameRule,
  columns: (value) => {
    if (!Array.isArray(value) || value.length === 0) return "an array of at least one column";
    for (const column of value) requireColumnName(column, "columns");
    return null;
  },
  dialect: dialectRule,
};

/**
 * A row with a version column. `handle` is a pool, a connection or a transaction of pg, postgres, mysql2, mariadb, a library
 * for SQLite, Kysely, Drizzle, Knex, Prisma or TypeORM. Rows have the values that the library returns. Inside a transaction
 * optimistic() makes one attempt, since all of the transaction must be repeated.
 * @throws TypeError if an argument is wrong
 */
export function versionedRow<Row extends object = SqlRow>(
  handle: unknown,
  options: VersionedRowOptions<Row>,
): VersionedStore<Row, Partial<Row>> {
  validateOptions("versionedRow()", options as VersionedRowOptions, OPTION_RULES, { required: ["table", "key"] });
  const sql = toSqlHandle(handle, options.dialect, "handle");
  const table = describeTable(sql.dialect, options as VersionedRowOptions);
  // by the rows that were read: a change that writes into its row could otherwise raise the version that is compared, to the one
  // that another writer has just made
  const readVersions = new WeakMap<object, number | bigint>();
  const versionOf = (row: object): number | bigint => readVersions.get(row) ?? readVersion(table, row as SqlRow);
  return {
    async read() {
      const { text, values } = selectStatement(table);
      const { rows } = await sql.query(text, values);
      if (rows.length > 1) throw new TypeError(`key must name one row of ${table.name}, but it names several`);
      const [row] = rows;
      if (row !== undefined) readVersions.set(row, readVersion(table, row));
      return (row as Row | undefined) ?? null;
    },
    async write(row, changes) {
      requireChanges(table, changes);
      const { text, values } = updateStatement(table, versionOf(row), changes as Changes);
      const { rows, affectedCount } = await sql.query(text, values);
      return (sql.dialect === "mysql" ? affectedCount : rows.length) > 0;
    },
    classifyError: (error) => classifyDatabaseError(sql.dialect, error),
    canRetry: (cause) => canRetry(sql, cause),
    readVersion: versionOf,
  };
}

type Changes = Readonly<Record<string, SqlValue>>;

interface Table {
  readonly dialect: SqlDialect;
  /** For messages. */
  readonly name: string;
  /** Quoted and qualified. */
  readonly quotedName: string;
  readonly key: readonly (readonly [column: string, value: SqlValue])[];
  readonly version: string;
  readonly columns: readonly string[] | null;
}

interface Statement {
  readonly text: string;
  readonly values: readonly SqlValue[];
}

function describeTable(dialect: SqlDialect, options: VersionedRowOptions): Table {
  const { table, schema, key, version = "version", columns } = options;
  const names = schema === undefined ? [table] : [schema, table];
  if (Object.hasOwn(key, version)) throw new TypeError(`key must not contain the version column ${version}`);
  return {
    dialect,
    name: names.join("."),
    quotedName: names.map((name) => quoteName(dialect, name)).join("."),
    key: Object.entries(key) as [string, SqlValue][],
    version,
    columns: columns === undefined ? null : [...new Set([...columns, version])],
  };
}

/** Two rows suffice to see that the key names several. */
function selectStatement(table: Table): Statement {
  const parameters = createParameters(table.dialect);
  const columns = table.columns?.map((column) => quoteName(table.dialect, column)).join(", ") ?? "*";
  const where = whereKey(table, parameters);
  return { text: `select ${columns} from ${table.quotedName} where ${where} limit 2`, values: parameters.values };
}

/**
 * MariaDB and MySQL count the rows: the version always changes, so the row counts also where the connection counts changed
 * rows and not found ones. Elsewhere the row is returned, since some libraries lose the count.
 */
function updateStatement(table: Table, version: number | bigint, changes: Changes): Statement {
  const parameters = createParameters(table.dialect);
  const quote = (column: string): string => quoteName(table.dialect, column);
  const quotedVersion = quote(table.version);
  const assignments = Object.entries(changes).map(([column, value]) => `${quote(column)} = ${parameters.add(value)}`);
  assignments.push(`${quotedVersion} = ${quotedVersion} + 1`);
  const where = `${whereKey(table, parameters)} and ${quotedVersion} = ${parameters.add(version)}`;
  const returning = table.dialect === "mysql" ? "" : ` returning ${quotedVersion}`;
  const text = `update ${table.quotedName} set ${assignments.join(", ")} where ${where}${returning}`;
  return { text, values: parameters.values };
}

function whereKey(table: Table, parameters: Parameters): string {
  return table.key
    .map(([column, value]) => `${quoteName(table.dialect, column)} = ${parameters.add(value)}`)
    .join(" and ");
}

interface Parameters {
  readonly values: readonly SqlValue[];
  /** Returns the parameter's place in the text. */
  add(value: SqlValue): string;
}

function createParameters(dialect: SqlDialect): Parameters {
  const values: SqlValue[] = [];
  return {
    values,
    add(value) {
      values.push(value);
      return dialect === "postgres" ? `$${values.length}` : "?";
    },
  };
}

/** Of names that nameRule accepts, which contain no quotes. */
function quoteName(dialect: SqlDialect, name: string): string {
  return dialect === "mysql" ? `\`${name}\`` : `"${name}"`;
}

/** pg, and others for PostgreSQL, return a bigint column as text. */
function readVersion(table: Table, row: SqlRow): number | bigint {
  const found: unknown = row[table.version];
  const version = typeof found === "string" && /^-?\d+$/.test(found) ? BigInt(found) : found;
  if (typeof version === "bigint") {
    const number = Number(version);
    return Number.isSafeInteger(number) ? number : version;
  }
  // a rounded version, or a timestamp, would never be found again, or be that of another write
  if (Number.isSafeInteger(version)) return version as number;
  throw new TypeError(
    `column ${table.version} of ${table.name} must contain an integer that is not rounded, not ${describeValue(found)}: make it bigint not null default 0`,
  );
}

function requireChanges(table: Table, changes: unknown): asserts changes is Changes {
  if (!isObject(changes)) {
    throw new TypeError(`change must return an object of columns, or stop(), not ${describeValue(changes)}`);
  }
  for (const [column, value] of Object.entries(changes)) {
    requireColumnName(column, "the result of change");
    if (column === table.version || table.key.some(([name]) => name === column)) {
      throw new TypeError(`change must not return the column ${column}, which is part of the key or the version`);
    }
    requireSqlValue(value, column);
  }
}

function requireColumnName(column: unknown, argument: string): void {
  const expected = nameRule(column);
  if (expected === null) return;
  throw new TypeError(`${argument} contains the column ${describeValue(column)}, but a column must be ${expected}`);
}

function requireSqlValue(value: unknown, name: string): void {
  const isNumber = typeof value === "number" && Number.isFinite(value);
  if (isNumber || ["string", "bigint", "boolean"].includes(typeof value) || value === null) return;
  if (value instanceof Uint8Array) return;
  throw new TypeError(
    `${name} must be a text, a finite number, a bigint, true, false, null or a Uint8Array, not ${describeValue(value)}`,
  );
}

/** A deadlock of MariaDB ends the transaction, so that a retry would run, and commit, outside of it. */
function canRetry(sql: SqlHandle, cause: unknown): boolean {
  const isInTransaction = sql.isInTransaction();
  if (isInTransaction !== null) return !isInTransaction;
  return cause === undefined || !endsTransaction(sql.dialect, cause);
}
