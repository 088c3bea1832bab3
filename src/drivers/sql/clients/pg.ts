/** The adapter for pg (node-postgres 8) and pools of the same shape: a Pool, or a single Client. */

import {
  beginsTransaction,
  ConnectionMutex,
  createConnection,
  createTransactionError,
  EndSignal,
} from "./connection.ts";
import type { Emitter } from "./emitter.ts";
import { ignoreError, ignoreErrors, watchEvents } from "./emitter.ts";
import { isPostgresServerError, parsePostgresText } from "./postgres-protocol.ts";
import type { DedicatedConnection, SqlClient, SqlConnection, SqlResult, SqlRow, SqlValue } from "./types.ts";

interface PgResult {
  readonly command: string | null;
  readonly rowCount: number | null;
  readonly fields: readonly unknown[];
  readonly rows: readonly SqlRow[];
}

/** A Client of pg. */
export interface PgClientLike extends Emitter {
  query(query: object): Promise<PgResult | readonly PgResult[]>;
  connect(): Promise<unknown>;
  end(): Promise<unknown>;
  /** "I": idle; "T": in a transaction; "E": in a failed transaction. Absent before pg 8.19. */
  getTransactionStatus?(): string | null;
  /** The protocol, whose messages tell the status. Absent in pg-native. */
  readonly connection?: Pick<Emitter, "on"> & { readonly stream?: { destroy(): unknown } };
  unref?(): void;
  /** Of the session. Absent in pg-native. */
  readonly processID?: number | null;
}

interface PgPooledClientLike extends PgClientLike {
  release(isBroken?: boolean): void;
}

/** A Pool of pg. */
export interface PgPoolLike extends Emitter {
  /** The settings of its clients. */
  readonly options: object;
  readonly Client?: new (options: object) => PgClientLike;
  connect(): Promise<PgPooledClientLike>;
  end(): Promise<unknown>;
}

/** Milliseconds to connect, if the pool has no limit of its own. */
const CONNECT_TIMEOUT_MS = 5_000;
/** The object identifiers of types whose binary format is text: unknown, text, name, varchar, json. */
const TEXT_TYPES: readonly number[] = [705, 25, 19, 1043, 114];
/** What the server last said to a client of pg before 8.19: the status as getTransactionStatus() returns it. */
const lastStatuses = new WeakMap<PgClientLike, string>();
/** The server does not know the name of a prepared statement, or knows it already. */
const NAME_ERRORS: readonly string[] = ["26000", "42P05"];
const WRITE_COMMANDS: readonly string[] = ["INSERT", "UPDATE", "DELETE", "MERGE"];
/**
 * Replaces the parsers of the user, which may return anything. `length` is read as that of a list of parameter types.
 */
const PLAIN_TYPES = { length: 0, getTypeParser };

export function adaptPgPool(pool: PgPoolLike): SqlClient {
  ignoreErrors(pool);
  // the pool listens only to idle clients: without a listener the break of one in use would end the process. Not later:
  // the server's last message may be in the packet that makes a client ready. It stays, since a client that the pool
  // closes may still receive that message
  if (!pool.listeners("acquire").includes(ignoreErrors)) pool.on("acquire", ignoreErrors);
  const { Client } = pool;
  const names = new StatementNames();
  return {
    dialect: "postgres",
    library: "pg",
    async connect() {
      const client = await pool.connect();
      if (!isStatusKnown(client)) {
        await learnStatus(client).catch((error: unknown) => {
          client.release(true);
          throw error;
        });
      }
      // a transaction of the driver that failed half-way must not reach the next user of the connection
      const release = (isBroken: boolean): void => {
        client.release(isBroken || isInTransaction(client));
        // the library would wait for the server to close it, which may not answer
        if (isBroken) client.connection?.stream?.destroy();
      };
      if (isInTransaction(client)) {
        // nothing can continue a transaction that was left open in the pool: closing the connection ends it
        release(true);
        throw createTransactionError("pg", "a connection of the pool was returned inside a transaction");
      }
      return adaptClient(client, names, release);
    },
    watchBreaks: (listener) => watchEvents(pool, ["error", "remove"], listener),
    ...(Client !== undefined && { connectDedicated: () => connectDedicated(Client, pool.options) }),
    async close() {
      // the listeners stay: its connections end a little later, and may still receive a last message of the server
      await pool.end();
    },
  };
}

/**
 * The statements of the user and of the driver share the connection, so each caller has it alone only among the
 * driver's.
 */
export function adaptPgClient(client: PgClientLike): SqlClient {
  ignoreErrors(client);
  const mutex = new ConnectionMutex();
  return {
    dialect: "postgres",
    library: "pg",
    async connect() {
      const unlock = await mutex.lock();
      if (!isStatusKnown(client)) {
        await learnStatus(client).catch((error: unknown) => {
          unlock();
          throw error;
        });
      }
      if (isInTransaction(client)) {
        unlock();
        throw createTransactionError("pg", "the client is inside a transaction");
      }
      const connection = adaptClient(client, null, unlock);
      return {
        ...connection,
        async query(text, values) {
          // other statements of the user could get into a transaction, and would be rolled back with it
          if (beginsTransaction(text)) {
            throw new TypeError(
              "pg: a transaction of the driver needs a Pool: a single Client is shared with other code",
            );
          }
          const result = await connection.query(text, values);
          if (isInTransaction(client)) {
            throw createTransactionError("pg", "the statement became part of a transaction of the user");
          }
          return result;
        },
      };
    },
    watchBreaks: (listener) => watchEvents(client, ["error", "end"], listener),
    async close() {
      await client.end();
      client.off("error", ignoreError);
    },
  };
}

/** @param names null: nothing is prepared */
function adaptClient(
  client: PgClientLike,
  names: StatementNames | null,
  release: (isBroken: boolean) => void,
): SqlConnection {
  return createConnection({
    run: (text, values) => run(client, names, text, values),
    release,
    isServerError: isPostgresServerError,
  });
}

/** Not an async function, since each promise costs a short statement a good part of its time. */
function run(
  client: PgClientLike,
  names: StatementNames | null,
  text: string,
  values: readonly SqlValue[],
): Promise<SqlResult> {
  // in a transaction the error of a name would undo what was done before
  const name = names === null || values.length === 0 || isInTransaction(client) ? null : names.get(text);
  const result = client.query(createQuery(text, values, name));
  if (names === null || name === null) return result.then(toSqlResult);
  return result.then(toSqlResult, (error: unknown) => {
    if (!NAME_ERRORS.includes(String((error as { readonly code?: unknown }).code))) throw error;
    // nothing was executed. If the call was abandoned meanwhile, the connection is closed and sends nothing any more
    names.disable();
    return client.query(createQuery(text, values, null)).then(toSqlResult);
  });
}

/**
 * The names under which connections keep statements with parameters prepared, which are always the same few: the server
 * parses and plans each once. A pooler in transaction mode may give a statement to a session that does not know its
 * name; then names are not used any more.
 */
class StatementNames {
  readonly #names = new Map<string, string>();
  #isDisabled = false;

  /** Null: do without. Sessions that clients share know equal names only for equal statements. */
  get(text: string): string | null {
    if (this.#isDisabled) return null;
    let name = this.#names.get(text);
    if (name === undefined) {
      // fencing loads this file, most often without need of a name: an import would take it two milliseconds
      const { hash } = process.getBuiltinModule("node:crypto");
      name = `holdfast_${hash("sha256", text, "hex").slice(0, 32)}`;
      this.#names.set(text, name);
    }
    return name;
  }

  disable(): void {
    this.#isDisabled = true;
  }
}

async function connectDedicated(
  Client: new (options: object) => PgClientLike,
  poolOptions: object,
): Promise<DedicatedConnection> {
  // the pool hides the password from enumeration: a spread would lose it
  const options = Object.defineProperties({}, Object.getOwnPropertyDescriptors(poolOptions)) as {
    connectionTimeoutMillis?: number;
    keepAlive?: boolean;
  };
  options.connectionTimeoutMillis ||= CONNECT_TIMEOUT_MS;
  options.keepAlive ??= true;
  const client = new Client(options);
  const signal = new EndSignal();
  watchEvents(client, ["error", "end"], signal.end);
  try {
    await client.connect();
  } catch (error) {
    client.end().catch(ignoreError);
    throw error;
  }
  client.unref?.();
  let names: StatementNames | null = null;
  return {
    ...adaptClient(client, null, () => {
      client.end().catch(ignoreError);
      signal.end();
    }),
    sessionId: String(client.processID ?? "") || null,
    prepareStatements() {
      names = new StatementNames();
    },
    // its state after an error does not matter, since each release closes it
    query: (text, values = []) => run(client, names, text, values),
    onEnd: signal.onEnd,
    onNotification(listener) {
      client.on(
        "notification",
        ({ channel, payload = "" }: { readonly channel: string; readonly payload?: string }) => {
          listener(channel, payload);
        },
      );
    },
  };
}

/** Every setting of the client that changes results is overridden. */
function createQuery(text: string, values: readonly SqlValue[], name: string | null): object {
  return name === null
    ? { text, values: [...values], types: PLAIN_TYPES }
    : { name, text, values: [...values], types: PLAIN_TYPES };
}

function toSqlResult(result: PgResult | readonly PgResult[]): SqlResult {
  const results = Array.isArray(result) ? (result as readonly PgResult[]) : [result as PgResult];
  const { rows = [] } = results.find(({ fields }) => fields.length > 0) ?? {};
  const affectedCount = results.reduce((sum, one) => sum + countAffected(one), 0);
  return { rows, affectedCount };
}

function countAffected({ command, rowCount }: PgResult): number {
  return command !== null && WRITE_COMMANDS.includes(command) ? (rowCount ?? 0) : 0;
}

/** A client with the option `binary` reads the bytes of every type as UTF-8, so that only text is right. */
function getTypeParser(type: number, format: string = "text"): (value: string | Buffer) => unknown {
  if (format === "text") return (value) => parsePostgresText(type, value as string);
  if (TEXT_TYPES.includes(type)) return String;
  // thrown while the library reads a row, since it would be an uncaught exception here
  return () => {
    throw new Error("pg: a client with the option binary does not return numbers exactly: pass a client without it");
  };
}

/**
 * pg before 8.19 does not say whether a transaction is open, and a grant inside one would be undone by its rollback.
 * The server says so after every statement, so an empty one is sent if none was seen yet.
 */
async function learnStatus(client: PgClientLike): Promise<void> {
  client.connection?.on("readyForQuery", ({ status }: { readonly status: string }) => {
    lastStatuses.set(client, status);
  });
  await client.query({ text: "" });
}

/** Also of a client that never says it. */
function isStatusKnown(client: PgClientLike): boolean {
  return client.getTransactionStatus !== undefined || client.connection === undefined || lastStatuses.has(client);
}

function isInTransaction(client: PgClientLike): boolean {
  const status = client.getTransactionStatus?.() ?? lastStatuses.get(client);
  return status === "T" || status === "E";
}
