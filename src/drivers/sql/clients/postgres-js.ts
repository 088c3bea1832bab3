/**
 * The adapter for postgres.js (the package `postgres`) 3. Each call reserves a connection: otherwise the library would
 * pipeline a statement behind those of the user. A reserved connection that is used after it broke ends the process, so
 * the adapter watches it as the library's own transactions do, and the first statement must follow at once. Statements
 * go as one message with literals: with parameters and without a named statement, which PgBouncer does not support,
 * each would take two trips.
 */

import {
  beginsTransaction,
  breakListeners,
  copyWithoutStatement,
  createConnection,
  createTransactionError,
  EndSignal,
  endsTransaction,
} from "./connection.ts";
import { ignoreError } from "./emitter.ts";
import { insertPostgresValues, isPostgresServerError, parsePostgresText } from "./postgres-protocol.ts";
import type { DedicatedConnection, SqlClient, SqlConnection, SqlResult, SqlRow, SqlValue } from "./types.ts";

interface PostgresJsResult extends ReadonlyArray<readonly (Buffer | null)[]> {
  readonly columns?: readonly { readonly name: string; readonly type: number }[];
  readonly command?: string;
  readonly count?: number | null;
  /** Of the session that ran it. */
  readonly state?: { readonly pid?: number | null };
}

interface PostgresJsQuery extends PromiseLike<PostgresJsResult | readonly PostgresJsResult[]> {
  /** Rows as lists of bytes, without parsers and transforms. */
  raw(): PostgresJsQuery;
  cancel(): Promise<unknown> | null | undefined;
}

interface StatementRunner {
  unsafe(text: string, values?: readonly never[], options?: object): PostgresJsQuery;
}

/**
 * A connection, as the library passes it to the hook of its own transactions. Its close listener is called when it
 * ends.
 */
interface InnerConnection {
  onclose?: ((error: unknown) => void) | null;
}

interface ReservedLike extends StatementRunner {
  release(): void;
}

interface PostgresJsOptions {
  /** Read by the library whenever a connection has ended. */
  onclose?: ((connectionId: number) => void) | undefined;
  readonly fetch_types?: unknown;
  readonly transform?: {
    readonly column?: { readonly from?: unknown };
    readonly row?: { readonly from?: unknown };
  };
}

/** The `sql` of postgres.js. */
export interface PostgresJsLike extends StatementRunner {
  /** All settings, as they were understood. */
  readonly options: PostgresJsOptions;
  reserve(): Promise<ReservedLike>;
  end(options?: { readonly timeout?: number }): Promise<void>;
}

/** The function of the package. */
export type CreatePostgresJs = (options: object) => PostgresJsLike;

export function adaptPostgresJs(sql: PostgresJsLike): SqlClient {
  const { transform } = sql.options;
  if (transform?.row?.from) throw new TypeError("client must be a postgres.js client without the option transform.row");
  const hasPlainNames = !transform?.column?.from;
  return {
    dialect: "postgres",
    library: "postgres.js",
    async connect() {
      // without types to fetch, reserve() of 3.4 never ends if it has to open a connection: the query opens it
      if (sql.options.fetch_types === false) await sql.unsafe("select 1");
      return adaptReserved(await sql.reserve(), hasPlainNames);
    },
    watchBreaks: breakListeners(sql, (notify) => addCloseHook(sql.options, notify)).watchBreaks,
    connectDedicated: async () => connectPostgresJs(await importLibrary(), { ...sql.options, idle_timeout: null }),
    close: () => sql.end({ timeout: 1 }),
  };
}

/** The library has no event for the end of a connection: only this option, and it is read each time. */
function addCloseHook(options: PostgresJsOptions, notify: () => void): void {
  const { onclose } = options;
  options.onclose = (connectionId) => {
    notify();
    onclose?.(connectionId);
  };
}

async function importLibrary(): Promise<CreatePostgresJs> {
  // in a try block: bundlers then accept that the package is missing, as it is for users of other stores
  try {
    const { default: create } = (await import("postgres" as string)) as { readonly default: CreatePostgresJs };
    return create;
  } catch (cause) {
    throw new Error('postgres: the package "postgres" cannot be loaded for a connection of its own', { cause });
  }
}

/**
 * Whether the transaction began with this message: else other code has left it open. The library does not tell what the
 * server says of it after each statement. As a column of a query it costs a quarter of what a statement of its own
 * does.
 */
const IS_OWN_TRANSACTION = "pg_catalog.transaction_timestamp() operator(pg_catalog.=) pg_catalog.statement_timestamp()";

/** The driver's own queries, which can be a part of another one. */
const QUERY = /^\s*select\b/i;

/** The library cannot close the connection: what would make its next calls fail is ended. */
const END_STATE = "rollback";

function adaptReserved(reserved: ReservedLike, hasPlainNames: boolean): SqlConnection {
  let isEnded = false;
  let isInTransaction = false;
  let pending: PostgresJsQuery | null = null;
  let lastRun: Promise<unknown> = Promise.resolve();
  let inner: InnerConnection | null = null;
  const onClose = (): void => {
    isEnded = true;
  };
  const watch = (connection: InnerConnection): true => {
    inner = connection;
    connection.onclose = onClose;
    return true;
  };
  const finish = async (isBroken: boolean): Promise<void> => {
    // the server may take long to answer, and the connection is reserved until then
    await Promise.all([pending?.cancel(), lastRun]).catch(ignoreError);
    if (!isEnded && (isBroken || isInTransaction)) await reserved.unsafe(END_STATE).then(null, () => (isEnded = true));
    if (inner?.onclose === onClose) inner.onclose = null;
    // the library has closed a connection that broke; released again, it would be given out although it is closed
    if (!isEnded) reserved.release();
  };
  const send = async (text: string): Promise<readonly PostgresJsResult[]> => {
    pending = reserved.unsafe(text, [], { onexecute: watch }).raw();
    try {
      return toList(await pending);
    } catch (error) {
      if (!isPostgresServerError(error)) isEnded = true;
      throw error;
    } finally {
      pending = null;
    }
  };
  /** After a reply that does not say whether a transaction is open. */
  const isLeftOpen = (): Promise<boolean> =>
    send(`select ${IS_OWN_TRANSACTION}`).then(
      (results) => !isTrue(readCheck(results)),
      (error: unknown) => isPostgresServerError(error),
    );
  const isConfirmed = async (results: readonly PostgresJsResult[]): Promise<boolean> => {
    const value = readCheck(results);
    return value === undefined ? !(await isLeftOpen()) : isTrue(value);
  };
  const run = async (text: string, values: readonly SqlValue[]): Promise<SqlResult> => {
    if (isEnded) throw new Error("postgres.js: the connection has ended");
    const check = isInTransaction ? "none" : QUERY.test(text) ? "column" : "statement";
    if (beginsTransaction(text)) isInTransaction = true;
    // of a client that renames columns, only the content of a value has the true names
    const isJson = !hasPlainNames && QUERY.test(text);
    const statement = values.length === 0 ? text : insertPostgresValues(text, values);
    const renamed = isJson ? `select row_to_json(holdfast) from (${statement}) holdfast` : statement;
    let results: readonly PostgresJsResult[];
    try {
      results = await send(addCheck(renamed, check));
    } catch (error) {
      if (check !== "none" && !isEnded && (await isLeftOpen())) throw createLeftOpenError();
      throw copyWithoutStatement(error);
    }
    if (check !== "none" && !(await isConfirmed(results))) throw createLeftOpenError();
    const { rows, affectedCount } = toSqlResult(
      check === "statement" ? results.slice(0, -1) : results,
      check === "column" ? 1 : 0,
    );
    if (endsTransaction(text)) isInTransaction = false;
    return { rows: isJson ? rows.map(parseJsonRow) : rows, affectedCount };
  };
  return createConnection({
    run(text, values) {
      const result = run(text, values);
      lastRun = result.catch(ignoreError);
      return result;
    },
    release: (isBroken) => void finish(isBroken).catch(ignoreError),
    isServerError: isPostgresServerError,
  });
}

/** What ran inside is rolled back when the connection is released. */
function createLeftOpenError(): Error {
  return createTransactionError("postgres.js", "a connection of the pool was returned inside a transaction");
}

/** Where a message says whether it has its own transaction. */
type Check = "column" | "statement" | "none";

function addCheck(statement: string, check: Check): string {
  if (check === "none") return statement;
  if (check === "statement") return `${statement};\nselect ${IS_OWN_TRANSACTION}`;
  return statement.replace(QUERY, (select) => `${select} ${IS_OWN_TRANSACTION},`);
}

/** undefined: a query without rows does not say it. */
function readCheck(results: readonly PostgresJsResult[]): Buffer | null | undefined {
  return results.at(-1)?.[0]?.[0];
}

function isTrue(value: Buffer | null | undefined): boolean {
  return value?.toString() === "t";
}

/** Opens a connection of its own. Its release closes it. */
export async function connectPostgresJs(create: CreatePostgresJs, options: object): Promise<DedicatedConnection> {
  const signal = new EndSignal();
  let onNotification: (channel: string, payload: string) => void = ignoreError;
  let hasEnded = false;
  signal.onEnd(() => {
    hasEnded = true;
  });
  const sql = create({
    ...options,
    max: 1,
    max_lifetime: null,
    fetch_types: false,
    transform: { undefined: undefined, column: {}, value: {}, row: {} },
    onclose: signal.end,
    onnotify: (channel: string, payload: string) => onNotification(channel, payload),
  });
  const end = (): void => {
    sql.end({ timeout: 0 }).catch(ignoreError);
    signal.end();
  };
  let sessionId: string | null = null;
  const run = async (text: string, values: readonly SqlValue[]): Promise<SqlResult> => {
    // the library would open another connection
    if (hasEnded) throw new Error("postgres.js: the connection has ended");
    try {
      const result = await sql.unsafe(insertPostgresValues(text, values)).raw();
      if ("state" in result) sessionId ??= String(result.state?.pid ?? "") || null;
      return toSqlResult(toList(result));
    } catch (error) {
      throw copyWithoutStatement(error);
    }
  };
  try {
    await run("select 1", []);
  } catch (error) {
    end();
    throw error;
  }
  return {
    ...createConnection({ run, release: end, isServerError: isPostgresServerError }),
    sessionId,
    onEnd: signal.onEnd,
    onNotification(listener) {
      onNotification = listener;
    },
  };
}

function toList(result: PostgresJsResult | readonly PostgresJsResult[]): readonly PostgresJsResult[] {
  return "command" in result ? [result] : (result as readonly PostgresJsResult[]);
}

/** `skipped`: the number of columns that are not of the query. */
function toSqlResult(results: readonly PostgresJsResult[], skipped = 0): SqlResult {
  const first = results.find(({ columns }) => columns !== undefined && columns !== null);
  const affectedCount = results.reduce(
    (sum, { command, count }) => sum + (/^(?:INSERT|UPDATE|DELETE|MERGE)\b/.test(command ?? "") ? (count ?? 0) : 0),
    0,
  );
  const columns = (first?.columns ?? []).slice(skipped);
  const rows = [...(first ?? [])].map((row) => toRow(row.slice(skipped), columns));
  return { rows, affectedCount };
}

function toRow(
  values: readonly (Buffer | null)[],
  columns: readonly { readonly name: string; readonly type: number }[],
): SqlRow {
  return Object.fromEntries(
    columns.map(({ name, type }, index) => {
      const value = values[index] ?? null;
      return [name, value === null ? null : parsePostgresText(type, value.toString("utf8"))];
    }),
  );
}

/** @throws Error if a number was rounded */
function parseJsonRow(row: SqlRow): SqlRow {
  const [text] = Object.values(row);
  const parsed = JSON.parse(String(text)) as SqlRow;
  for (const value of Object.values(parsed)) {
    if (typeof value !== "number" || Number.isSafeInteger(value)) continue;
    throw new Error("postgres.js: a client with the option transform.column cannot return large numbers");
  }
  return parsed;
}
