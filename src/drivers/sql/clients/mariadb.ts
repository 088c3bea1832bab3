/** The adapter for mariadb 3: pools and single connections, with promises. */

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

/** A connection of mariadb. */
export interface MariadbConnectionLike extends Emitter {
  /** The id of its session. */
  readonly threadId?: number | bigint | null;
  readonly info?: { readonly status?: number | null } | null;
  query(options: object): Promise<unknown>;
  end(): Promise<unknown>;
  destroy(): void;
  /** Of the library's own tests: the only way to the socket. */
  readonly __tests?: { getSocket?(): { destroy(error: Error): unknown } | undefined };
}

interface MariadbPooledLike extends MariadbConnectionLike {
  release(): Promise<unknown>;
}

/** A pool of mariadb. It does not reveal its settings. */
export interface MariadbPoolLike extends Emitter {
  getConnection(): Promise<MariadbPooledLike>;
  end(): Promise<unknown>;
}

export function adaptMariadbPool(pool: MariadbPoolLike): SqlClient {
  ignoreErrors(pool);
  const listeners = breakListeners(pool);
  return {
    dialect: "mysql",
    library: "mariadb",
    async connect() {
      const connection = await pool.getConnection();
      ignoreErrors(connection);
      listeners.watchConnection(connection);
      return adaptConnection(connection, (isBroken) => {
        if (isBroken) destroy(connection);
        else connection.release().catch(ignoreError);
      });
    },
    watchBreaks: listeners.watchBreaks,
    async close() {
      await pool.end();
    },
  };
}

export function adaptMariadbConnection(connection: MariadbConnectionLike): SqlClient {
  ignoreErrors(connection);
  const mutex = new ConnectionMutex();
  return {
    dialect: "mysql",
    library: "mariadb",
    async connect() {
      const unlock = await mutex.lock();
      if (!isInTransaction(connection)) return adaptConnection(connection, unlock);
      unlock();
      throw createTransactionError("mariadb", "the connection is inside a transaction");
    },
    watchBreaks: (listener) => watchEvents(connection, ["error", "end"], listener),
    async close() {
      await connection.end();
    },
  };
}

function adaptConnection(connection: MariadbConnectionLike, release: (isBroken: boolean) => void): SqlConnection {
  return createConnection({
    run: (text, values) => run(connection, text, values),
    release,
    isServerError: isMysqlServerError,
  });
}

/** A connection that no one else uses. Its release closes it. */
export function adaptDedicatedMariadb(connection: MariadbConnectionLike): DedicatedConnection {
  const signal = new EndSignal();
  watchEvents(connection, ["error", "end"], signal.end);
  return {
    ...adaptConnection(connection, (isBroken) => {
      if (isBroken) destroy(connection);
      else connection.end().catch(ignoreError);
      signal.end();
    }),
    sessionId: String(connection.threadId ?? "") || null,
    onEnd: signal.onEnd,
  };
}

/**
 * Closes a connection at once, by its socket. While a statement runs, the library's destroy() opens another connection
 * and sends KILL with the number of the session. Behind a load balancer, or after a restart of the server, another
 * client's session may have that number. If no session has it, KILL fails, and the library does not handle that
 * rejection, so Node.js ends the process.
 */
function destroy(connection: MariadbConnectionLike): void {
  const socket = connection.__tests?.getSocket?.();
  if (socket === undefined) connection.destroy();
  else socket.destroy(new Error("the connection was closed because a call on it failed"));
}

async function run(connection: MariadbConnectionLike, text: string, values: readonly SqlValue[]): Promise<SqlResult> {
  // overrides every setting of the user that changes results
  const options = {
    sql: insertMysqlValues(text, values),
    typeCast: undefined,
    rowsAsArray: false,
    metaAsArray: false,
    nestTables: false,
    namedPlaceholders: false,
    dateStrings: true,
    bigIntAsNumber: false,
    decimalAsNumber: false,
    insertIdAsNumber: false,
    supportBigNumbers: false,
    bigNumberStrings: false,
    autoJsonMap: false,
    timeout: 0,
  };
  const result = await connection.query(options).catch((error: unknown) => {
    throw copyWithoutStatement(error, (error as { readonly sqlMessage?: string }).sqlMessage);
  });
  if (isInTransaction(connection)) {
    throw createTransactionError("mariadb", "the statement became part of a transaction of the user");
  }
  return toSqlResult(result);
}

/** A list of rows has the description of its columns; a list of results has none. */
function toSqlResult(result: unknown): SqlResult {
  const results = Array.isArray(result) && !("meta" in result) ? (result as readonly unknown[]) : [result];
  const rows = (results.find((one) => Array.isArray(one)) ?? []) as readonly SqlRow[];
  if (!areReadable(rows)) throw createUnreadableError();
  const headers = results.filter((one) => !Array.isArray(one)) as readonly { readonly affectedRows: number }[];
  return {
    rows: rows.map(normalizeRow),
    affectedCount: headers.reduce((sum, { affectedRows }) => sum + affectedRows, 0),
  };
}

function normalizeRow(row: SqlRow): SqlRow {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, typeof value === "bigint" ? normalizeInteger(value) : value]),
  );
}

function isInTransaction({ info }: MariadbConnectionLike): boolean {
  return hasOpenTransaction(info?.status);
}
