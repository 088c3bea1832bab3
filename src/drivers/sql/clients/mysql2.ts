/** The adapter for mysql2 3: pools and single connections, of mysql2 and of mysql2/promise. */

import {
  breakListeners,
  ConnectionMutex,
  copyWithoutStatement,
  createConnection,
  createTransactionError,
  EndSignal,
} from "./connection.ts";
import type { Emitter } from "./emitter.ts";
import { ignoreError, ignoreErrors, watchEvents } from "./emitter.ts";
import { normalizeInteger } from "./integers.ts";
import {
  areReadable,
  createUnreadableError,
  hasOpenTransaction,
  insertMysqlValues,
  isMysqlServerError,
} from "./mysql-protocol.ts";
import type { DedicatedConnection, SqlClient, SqlConnection, SqlResult, SqlRow, SqlValue } from "./types.ts";

interface Mysql2Config {
  pool?: unknown;
  connectTimeout?: number;
}

type QueryCallback = (error: unknown, result: unknown, fields: unknown) => void;

/** The class of statements. query() returns one, and takes one instead of text or options. */
type QueryClass = new (options: object, callback: QueryCallback) => object;

/** A connection of mysql2, with callbacks. */
export interface Mysql2ConnectionLike extends Emitter {
  readonly config: Mysql2Config;
  /** The id of its session. */
  readonly threadId?: number | null;
  readonly stream: Pick<Emitter, "on" | "off"> & { unref?(): unknown; destroy?(): unknown };
  query(query: object | string, callback?: QueryCallback): unknown;
  end(callback: (error?: unknown) => void): void;
  destroy(): void;
}

interface Mysql2PooledLike extends Mysql2ConnectionLike {
  release(): void;
}

/** A pool of mysql2, with callbacks. */
export interface Mysql2PoolLike extends Emitter {
  getConnection(callback: (error: unknown, connection: Mysql2PooledLike) => void): void;
  end(callback: (error?: unknown) => void): void;
}

/** The class of connections that are not pooled. */
type ConnectionClass = new (options: { readonly config: object }) => Mysql2ConnectionLike;

/** How to open another connection. Only a connection of the pool shows it. */
interface Template {
  readonly Connection: ConnectionClass;
  readonly config: Mysql2Config;
}

/** Columns whose text form is an integer. */
const INTEGER_TYPES: readonly string[] = ["TINY", "SHORT", "INT24", "LONG", "LONGLONG", "YEAR"];
const DECIMAL_TYPES: readonly string[] = ["DECIMAL", "NEWDECIMAL"];

/** Override every setting of the user that changes results. */
const RESULT_SETTINGS = {
  typeCast: readColumn,
  rowsAsArray: false,
  nestTables: false,
  namedPlaceholders: false,
  dateStrings: true,
};

export function adaptMysql2Pool(pool: Mysql2PoolLike): SqlClient {
  const listeners = breakListeners(pool);
  let known: Template | undefined;
  const takePooled = async (): Promise<{ readonly core: Mysql2PooledLike; readonly template: Template }> => {
    const core = await new Promise<Mysql2PooledLike>((resolve, reject) => {
      pool.getConnection((error, connection) => {
        if (error) reject(error);
        else resolve(connection);
      });
    });
    known ??= { Connection: Object.getPrototypeOf(core.constructor) as ConnectionClass, config: core.config };
    return { core, template: known };
  };
  return {
    dialect: "mysql",
    library: "mysql2",
    async connect() {
      const { core } = await takePooled();
      ignoreErrors(core);
      listeners.watchConnection(core);
      return adaptCore(core, (isBroken) => {
        if (isBroken) destroy(core);
        else core.release();
      });
    },
    watchBreaks: listeners.watchBreaks,
    async connectDedicated() {
      if (known !== undefined) return connectDedicated(known);
      const { core, template } = await takePooled();
      core.release();
      return connectDedicated(template);
    },
    close: () => end(pool),
  };
}

export function adaptMysql2Connection(connection: Mysql2ConnectionLike): SqlClient {
  ignoreErrors(connection);
  const mutex = new ConnectionMutex();
  return {
    dialect: "mysql",
    library: "mysql2",
    connect: async () => adaptCore(connection, await mutex.lock()),
    // an error that a query reports is no event of the connection
    watchBreaks: (listener) => watchEvents(connection.stream, ["close"], listener),
    // of one that has broken nothing is left to end
    close: () => end(connection).catch(ignoreError),
  };
}

function adaptCore(core: Mysql2ConnectionLike, release: (isBroken: boolean) => void): SqlConnection {
  return createConnection({
    run: (text, values) => runText(core, text, values),
    release,
    isServerError: isMysqlServerError,
  });
}

function connectDedicated({ Connection, config }: Template): Promise<DedicatedConnection> {
  return waitForMysql2(new Connection({ config: copyConfig(config) }));
}

/** Waits until a connection that no one else uses is open. Its release closes it. */
export async function waitForMysql2(core: Mysql2ConnectionLike): Promise<DedicatedConnection> {
  const signal = new EndSignal();
  await new Promise<void>((resolve, reject) => {
    core.on("connect", () => resolve());
    core.on("error", (error: unknown) => {
      reject(error);
      signal.end();
    });
  });
  core.on("end", signal.end);
  core.stream.on("close", signal.end);
  core.stream.unref?.();
  return {
    ...adaptCore(core, (isBroken) => {
      if (isBroken) destroy(core);
      else end(core).catch(ignoreError);
      signal.end();
    }),
    sessionId: String(core.threadId ?? "") || null,
    // its state after an error does not matter, since each release closes it
    query: (text, values = []) => runText(core, text, values),
    onEnd: signal.onEnd,
  };
}

/** The settings of a connection that is only the driver's. */
function copyConfig(config: Mysql2Config): Mysql2Config {
  const copy = Object.create(Object.getPrototypeOf(config), Object.getOwnPropertyDescriptors(config)) as Mysql2Config;
  delete copy.pool;
  return copy;
}

function runText(core: Mysql2ConnectionLike, text: string, values: readonly SqlValue[]): Promise<SqlResult> {
  const options = { sql: insertMysqlValues(text, values), ...RESULT_SETTINGS };
  return run((callback) => sendQuery(core, options, callback));
}

/** By the class of their connections: a program may have several copies of mysql2. */
const queryClasses = new WeakMap<object, QueryClass>();

/** Like query(), which takes 6 us to make a statement of options; its class does it in a tenth of one. */
function sendQuery(core: Mysql2ConnectionLike, options: { readonly sql: string }, callback: QueryCallback): void {
  const Query = queryClasses.get(core.constructor);
  if (Query !== undefined) {
    core.query(new Query(options, callback));
    return;
  }
  const query = core.query(options, callback) as Partial<typeof options> | undefined;
  if (query?.sql === options.sql) queryClasses.set(core.constructor, query.constructor as QueryClass);
}

function run(send: (callback: QueryCallback) => void): Promise<SqlResult> {
  return new Promise((resolve, reject) => {
    send((error, result, fields) => {
      if (error) return reject(copyWithoutStatement(error));
      const results = isList(fields) ? (result as readonly unknown[]) : [result];
      if (isInTransaction(results)) {
        return reject(createTransactionError("mysql2", "the statement became part of a transaction of the user"));
      }
      const answer = toSqlResult(results);
      if (areReadable(answer.rows)) resolve(answer);
      else reject(createUnreadableError());
    });
  });
}

/** Several results have a list of columns each, undefined for those without rows. */
function isList(fields: unknown): boolean {
  return Array.isArray(fields) && (fields[0] === undefined || Array.isArray(fields[0]));
}

/** What a statement without rows returns; the last one of a CALL. */
interface ResultHeader {
  readonly affectedRows: number;
  readonly serverStatus?: number;
}

function toSqlResult(results: readonly unknown[]): SqlResult {
  const rows = (results.find((result) => Array.isArray(result)) ?? []) as readonly SqlRow[];
  const affectedCount = listHeaders(results).reduce((sum, { affectedRows }) => sum + affectedRows, 0);
  return { rows, affectedCount };
}

function isInTransaction(results: readonly unknown[]): boolean {
  const { serverStatus } = listHeaders(results).at(-1) ?? {};
  return hasOpenTransaction(serverStatus);
}

function listHeaders(results: readonly unknown[]): readonly ResultHeader[] {
  return results.filter((result) => !Array.isArray(result)) as readonly ResultHeader[];
}

interface Column {
  readonly type: string;
  /** "json" on MariaDB, which has no type of its own for it. */
  readonly extendedFormat?: string;
  string(encoding?: string): string | null;
}

function readColumn(column: Column, next: () => unknown): unknown {
  if (column.type === "JSON" || column.extendedFormat === "json") return column.string("utf8");
  if (DECIMAL_TYPES.includes(column.type)) return column.string("ascii");
  if (!INTEGER_TYPES.includes(column.type)) return next();
  const text = column.string("ascii");
  return text === null ? null : normalizeInteger(BigInt(text));
}

function end(client: Mysql2PoolLike | Mysql2ConnectionLike): Promise<void> {
  return new Promise((resolve, reject) => {
    client.end((error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}

/** destroy() alone waits for the server to close the socket. */
function destroy(core: Mysql2ConnectionLike): void {
  core.destroy();
  core.stream.destroy?.();
}
