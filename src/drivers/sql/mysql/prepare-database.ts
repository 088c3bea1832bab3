/** Prepares a server for locks: verifies what matters, creates tables and procedures that are missing. */

import { createHash } from "node:crypto";
import { StoreRefusedError } from "../../../errors.ts";
import type { Calls } from "../calls.ts";
import type { SqlClient, SqlConnection } from "../clients/types.ts";
import { BUCKET_COUNT, explainLayout, explainRevision, MYSQL_LAYOUT_VERSION } from "../schema.ts";
import { explainError, isMissingError, isRightError } from "./errors.ts";
import {
  expandStatement,
  listProcedures,
  parseRevision,
  REVISION,
  renderProcedures,
  renderTables,
} from "./migration.ts";
import type { MysqlLocation } from "./options.ts";
import type { ServerVariables } from "./server-variables.ts";
import { readVariables, withPlainSession } from "./server-variables.ts";

/** The first versions with all that the procedures need; MySQL also in the order of clauses. */
const MIN_VERSIONS = { MariaDB: [10, 6, 0], MySQL: [8, 0, 13] } as const;

const MIGRATION_HINT = "run the SQL of mysqlMigration(), whose comments name the rights that a user needs";

/** How long another process may take to create tables, in seconds. */
const SETUP_LOCK_SECONDS = 4;

/**
 * The database of the client's settings, by a new connection if there can be one: another user of the pool may have
 * left one of its connections in another database, where the locks of other processes are not.
 * @throws StoreRefusedError if there is none
 */
export async function readDefaultDatabase({ connectDedicated }: SqlClient, calls: Calls): Promise<string> {
  const read = async (connection: Pick<SqlConnection, "query">): Promise<unknown> =>
    (await connection.query("select database() as name limit 1")).rows[0]?.name;
  const name = await (connectDedicated === undefined
    ? calls.run(read)
    : connectDedicated().then((connection) => read(connection).finally(() => connection.release())));
  if (typeof name === "string") return name;
  throw new StoreRefusedError(
    "mysql: the client's connections have no database: name one in the url, in the settings of the client, or by the option database",
  );
}

/** @throws StoreRefusedError if this server, database or user cannot keep locks */
export async function prepareDatabase(
  connection: Pick<SqlConnection, "query">,
  location: MysqlLocation & { readonly database: string },
  createTables: boolean,
): Promise<void> {
  return withPlainSession(connection, async () => {
    verifyServer(await readVariables(connection));
    await verifyClock(connection);
    const missing = await findMissing(connection, location);
    if (missing === null) return;
    if (!createTables) {
      throw new StoreRefusedError(
        `mysql: ${missing}: let open() create them (option createTables), or ${MIGRATION_HINT}`,
      );
    }
    await createMissing(connection, location).catch((error: unknown) => {
      throw isRightError(error) ? toCreateError(missing, error) : error;
    });
    const stillMissing = await findMissing(connection, location);
    if (stillMissing !== null) throw new StoreRefusedError(`mysql: ${stillMissing}: ${MIGRATION_HINT}`);
  });
}

/** A right to what is missing may be all that the user lacks: it should not be told only that it may not create it. */
function toCreateError(missing: string, cause: unknown): StoreRefusedError {
  const { message } = explainError(cause) as Error;
  return new StoreRefusedError(
    `mysql: ${missing}, and this user cannot create them: ${message.replace("mysql: ", "")}`,
    { cause },
  );
}

function verifyServer(variables: ServerVariables): void {
  const { product, version } = variables;
  if (!isAtLeast(version, MIN_VERSIONS[product])) {
    const needed = `MariaDB ${MIN_VERSIONS.MariaDB.join(".")} or MySQL ${MIN_VERSIONS.MySQL.join(".")}`;
    throw new StoreRefusedError(`mysql: the server is ${product} ${version.join(".")}: use ${needed} or later`);
  }
  if (["read_only", "super_read_only", "innodb_read_only"].some((name) => variables.isOn(name))) {
    throw new StoreRefusedError("mysql: the server is read-only: connect to the primary server");
  }
  if (variables.isOn("log_bin") && variables.get("binlog_format") === "STATEMENT") {
    throw new StoreRefusedError(
      "mysql: the server writes statements to its binary log, which READ COMMITTED rules out: set binlog_format to MIXED or ROW",
    );
  }
}

/**
 * With --sysdate-is-now, which MySQL shows nowhere, SYSDATE is the time at which its statement began, or that of SET
 * timestamp.
 */
async function verifyClock(connection: Pick<SqlConnection, "query">): Promise<void> {
  // a millisecond passes before the comparison; SLEEP would end by a clock that may be stepped
  const { rows } = await connection.query(
    "/*M! set statement max_statement_time=0 for */ select benchmark(500, md5('')), sysdate(6) = now(6) as stands_still",
  );
  if (Number(rows[0]?.stands_still) === 0) return;
  throw new StoreRefusedError(
    "mysql: the server runs with --sysdate-is-now, so a session's clock that was set (SET timestamp) would go unnoticed: start it without that option",
  );
}

/** By their parts, the first one first. */
function isAtLeast(version: readonly number[], wanted: readonly number[]): boolean {
  for (const [index, part] of wanted.entries()) {
    const found = version[index] ?? 0;
    if (found !== part) return found > part;
  }
  return true;
}

/**
 * What is missing, or null.
 * @throws StoreRefusedError if the tables have another layout
 */
async function findMissing(connection: Pick<SqlConnection, "query">, location: MysqlLocation): Promise<string | null> {
  try {
    const layout = await connection.query(expandStatement("select version from {layout}", location));
    const versions = layout.rows.map(({ version }) => Number(version));
    if (versions.some((version) => version !== MYSQL_LAYOUT_VERSION)) {
      throw new StoreRefusedError(
        explainLayout("mysql", expandStatement("{layout}", location), versions[0], MYSQL_LAYOUT_VERSION),
      );
    }
    const buckets = await connection.query(expandStatement("select count(*) as count from {buckets}", location));
    if (versions.length === 0 || Number(buckets.rows[0]?.count) < BUCKET_COUNT) return "rows of the tables are missing";
    await connection.query(expandStatement("select 1 from {claims} limit 0", location));
    await connection.query(expandStatement("select 1 from {tombstones} limit 0", location));
    const identity = await connection.query(expandStatement("select 1 from {identity}", location));
    if (identity.rows.length === 0) return "rows of the tables are missing";
  } catch (error) {
    if (isMissingError(error)) return "tables are missing";
    throw error;
  }
  const revisions = await readRevisions(connection, location);
  const missing = listProcedures(location.prefix).filter((name) => !revisions.has(name));
  // a user sees only the procedures that it may execute
  if (missing.length > 0)
    return `procedures are missing, or this user has no right to EXECUTE them (${missing.join(", ")})`;
  const newest = [...revisions.values()].find(({ oldestCaller }) => oldestCaller > REVISION);
  if (newest !== undefined) {
    const where = `database ${location.database}`;
    throw new StoreRefusedError(explainRevision("mysql", "procedures", where, newest.revision, REVISION));
  }
  if (Math.min(...[...revisions.values()].map(({ revision }) => revision)) < REVISION)
    return "procedures are those of an older version of Holdfast";
  return null;
}

async function readRevisions(
  connection: Pick<SqlConnection, "query">,
  { database, prefix }: MysqlLocation,
): Promise<ReadonlyMap<string, ReturnType<typeof parseRevision>>> {
  const names = listProcedures(prefix);
  const { rows } = await connection.query(
    `select routine_name as name, routine_comment as comment from information_schema.routines
      where routine_schema = ? and routine_type = 'PROCEDURE' and routine_name in (${names.map(() => "?").join(",")})`,
    [database, ...names],
  );
  return new Map(rows.map(({ name, comment }) => [String(name), parseRevision(comment)]));
}

/** Several processes may start at once: one creates, the others wait and find everything there. */
async function createMissing(connection: Pick<SqlConnection, "query">, location: MysqlLocation): Promise<void> {
  const digest = createHash("sha256").update(`${location.database} ${location.prefix}`).digest("hex");
  const lockName = `holdfast_setup_${digest.slice(0, 16)}`;
  const { rows } = await connection.query("select get_lock(?, ?) as result", [lockName, SETUP_LOCK_SECONDS]);
  if (Number(rows[0]?.result) !== 1) throw new Error("mysql: another process has been creating the tables for long");
  try {
    for (const text of renderTables(location)) await connection.query(text);
    const revisions = await readRevisions(connection, location);
    const isCurrent = listProcedures(location.prefix).every((name) => (revisions.get(name)?.revision ?? 0) >= REVISION);
    if (isCurrent) return;
    for (const text of renderProcedures(location)) await connection.query(text);
  } finally {
    await connection.query("select release_lock(?) as result", [lockName]);
  }
}
