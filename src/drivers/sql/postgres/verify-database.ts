/** Checks a database before the first claim is sent to it, and creates the tables and functions. */

import { StoreRefusedError } from "../../../errors.ts";
import type { Calls } from "../calls.ts";
import type { SqlRow } from "../clients/types.ts";
import { DatabaseError } from "../database-error.ts";
import { explainLayout, explainRevision, LAYOUT_VERSION, quoteIdentifier } from "../schema.ts";
import { isMissingError, LOCK_TIMEOUT, NEWER_REVISION, readErrorCode } from "./errors.ts";
import { expandStatement, listFunctionNames, REVISION, renderMigration } from "./migration.ts";
import type { PostgresLocation } from "./options.ts";
import { queryPlain, readRow } from "./plain-transaction.ts";

/** The first version with what the functions use: plan_cache_mode. */
const MIN_VERSION = 12;

const READ_PROPERTIES = `select pg_catalog.current_setting('server_version_num')::int as version_number,
  pg_catalog.current_setting('server_version') as version, pg_catalog.current_setting('server_encoding') as encoding,
  (select reset_val from pg_catalog.pg_settings where name operator(pg_catalog.=) 'default_transaction_isolation') as isolation`;

const READ_LAYOUT = "select version, revision, oldest_caller from {layout}";

/** No operator of a schema in the search_path. */
const READ_MISSING_FUNCTIONS = `select wanted.name from pg_catalog.unnest(pg_catalog.string_to_array($1, ',')) as wanted (name)
where not exists (select from pg_catalog.pg_proc
  where proname operator(pg_catalog.=) wanted.name::pg_catalog.name
    and pronamespace operator(pg_catalog.=) $2::pg_catalog.regnamespace::pg_catalog.oid)`;

/** Rights of the statements that verify() does not run. */
const READ_MISSING_RIGHTS = `select name, needed from (values ('{claims}', 'select, insert, update, delete'),
  ('{tombstones}', 'select, insert, update, delete'), ('{buckets}', 'select, update'),
  ('{identity}', 'select, insert, update')) as t (name, needed)
where exists (select from pg_catalog.unnest(pg_catalog.string_to_array(needed, ', ')) as needed_right
  where not pg_catalog.has_table_privilege(name, needed_right))`;

/**
 * @param isCreating create what is missing
 * @throws StoreRefusedError if the database cannot keep locks, or its tables are of another layout
 */
export async function verifyDatabase(
  calls: Calls,
  location: PostgresLocation,
  isCreating: boolean,
): Promise<{ readonly isReadCommitted: boolean }> {
  const names = ["version_number", "version", "encoding", "isolation"];
  const properties = (await readRow(calls, READ_PROPERTIES, names)) ?? {};
  checkProperties(properties);
  const layout = await readLayout(calls, location);
  if (layout === null || Number(layout.revision) < REVISION || (await hasLostFunctions(calls, location, layout))) {
    if (!isCreating) throw createMigrationError(location, layout);
    await createTables(calls, location);
  }
  await checkRights(calls, location);
  return { isReadCommitted: /^read (?:un)?committed$/.test(String(properties.isolation)) };
}

function checkProperties(row: SqlRow): void {
  const { version_number: versionNumber, version, encoding } = row;
  if (Number(versionNumber) < MIN_VERSION * 10_000) {
    throw new StoreRefusedError(`postgres: PostgreSQL ${version} is too old: use ${MIN_VERSION} or later`);
  }
  // every key must have a form in the database
  if (encoding !== "UTF8") {
    throw new StoreRefusedError(`postgres: the database's encoding is ${encoding}: create one with encoding UTF8`);
  }
}

/** null: there is none. @throws StoreRefusedError for another layout */
async function readLayout(calls: Calls, location: PostgresLocation): Promise<SqlRow | null> {
  let layout: SqlRow | null;
  try {
    layout = await readRow(calls, expandStatement(READ_LAYOUT, location), ["version", "revision", "oldest_caller"]);
  } catch (error) {
    if (isMissingError(error)) return null;
    throw error;
  }
  if (layout !== null && Number(layout.version) !== LAYOUT_VERSION) {
    throw new StoreRefusedError(explainLayout("postgres", expandStatement("{layout}", location), layout.version));
  }
  if (layout !== null && Number(layout.oldest_caller) > REVISION) {
    throw new StoreRefusedError(
      explainRevision("postgres", "functions", `schema ${location.schema}`, layout.revision, REVISION),
    );
  }
  return layout;
}

/** A copy of the tables alone has none of the functions. Those of a newer revision may have other names. */
async function hasLostFunctions(calls: Calls, { schema, prefix }: PostgresLocation, layout: SqlRow): Promise<boolean> {
  if (Number(layout.revision) !== REVISION) return false;
  const values = [listFunctionNames(prefix).join(), quoteIdentifier(schema)];
  return (await readRow(calls, READ_MISSING_FUNCTIONS, ["name"], values)) !== null;
}

async function createTables(calls: Calls, location: PostgresLocation): Promise<void> {
  try {
    await calls.run((connection) => queryPlain(connection, renderMigration(location)));
  } catch (error) {
    if (readErrorCode(error) === LOCK_TIMEOUT) throw toLockedError(location, error);
    if (readErrorCode(error) !== NEWER_REVISION) throw error;
    // another client has just created them, in another version
    await readLayout(calls, location);
  }
}

/** A retry may succeed. The locks of other processes go on meanwhile. */
function toLockedError({ schema }: PostgresLocation, cause: unknown): DatabaseError {
  const message = `postgres: the tables of schema ${schema} must be changed for this version, and another session, perhaps a dump, keeps one of them locked: find it with pg_blocking_pids(), or open when it has ended (${LOCK_TIMEOUT})`;
  return Object.assign(new DatabaseError(message, LOCK_TIMEOUT, false), { cause });
}

function createMigrationError(location: PostgresLocation, layout: SqlRow | null): StoreRefusedError {
  const isOlder = layout !== null && Number(layout.revision) < REVISION;
  const what = isOlder ? `are of revision ${layout.revision}, older than ${REVISION}` : "are missing";
  return new StoreRefusedError(
    `postgres: the tables and functions of schema ${location.schema} ${what}, and the option createTables is false: run the SQL of postgresMigration()`,
  );
}

async function checkRights(calls: Calls, location: PostgresLocation): Promise<void> {
  // the names are inside literals here
  const statement = READ_MISSING_RIGHTS.replaceAll(
    /'(\{\w+\})'/g,
    (_, name: string) => `E'${expandStatement(name, location).replaceAll("\\", "\\\\").replaceAll("'", "''")}'`,
  );
  const missing = await readRow(calls, statement, ["name", "needed"]);
  if (missing === null) return;
  throw new StoreRefusedError(
    `postgres: this role lacks a right (42501): grant ${missing.needed} on ${missing.name} to it`,
  );
}
