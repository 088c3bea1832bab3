/**
 * What the SQL drivers use of a database client. The adapters in this folder make these of the libraries that users
 * have, found by shape: nothing is imported from a library that the user did not pass in.
 */

/** A value of a statement's parameter. Text goes as text, Uint8Array as bytes. */
export type SqlValue = string | number | bigint | boolean | null | Uint8Array;

/**
 * One row, by column name. Text is a string, NULL is null, bytes are a Uint8Array. An integer is a number, or a bigint
 * if a number would round it. The drivers select nothing else.
 */
export type SqlRow = Readonly<Record<string, unknown>>;

/** The result of one statement. */
export interface SqlResult {
  readonly rows: readonly SqlRow[];
  /** How many rows the statement inserted, updated or deleted; 0 for a query. */
  readonly affectedCount: number;
}

/** One connection of a pool, for one caller. Its statements run one after another. */
export interface SqlConnection {
  /**
   * Runs one statement. The parameters are numbered ($1, $2) on PostgreSQL and question marks elsewhere. Of a statement
   * with several results (CALL; several statements without parameters) it returns the first result with rows.
   */
  query(text: string, values?: readonly SqlValue[]): Promise<SqlResult>;
  /**
   * Returns it to the pool. `isBroken`: its state is unknown, so the pool closes it; a client that is a single
   * connection stays open, since it is the user's. Only the first call counts.
   */
  release(isBroken?: boolean): void;
}

/** A connection outside the pool, which stays open: for LISTEN, and for locks that block. */
export interface DedicatedConnection extends SqlConnection {
  /** Closes it: at once if `isBroken`, else in an orderly way, behind what it runs. Only the first call counts. */
  release(isBroken?: boolean): void;
  /**
   * The id of its session, as the other end told it at the start. A pooler in between tells an id of its own, not that
   * of a session of the server. Null: the library does not show it.
   */
  readonly sessionId: string | null;
  /**
   * From now on the session keeps statements with parameters prepared, if the library can. Not behind a pooler, whose
   * next client would find them.
   */
  prepareStatements?(): void;
  /** Called once when the connection ends for whatever reason, `release` included; at once if it has ended. */
  onEnd(listener: () => void): void;
  /** PostgreSQL: called with every notification. */
  onNotification?(listener: (channel: string, payload: string) => void): void;
}

/** The client of a database server: a pool, or one connection. */
export interface SqlClient {
  readonly dialect: "postgres" | "mysql";
  /** "pg", "postgres.js", "mysql2", "mariadb": for messages. */
  readonly library: string;
  /**
   * Takes a connection from the pool, and waits while the pool is exhausted. Rejects if a transaction of the user is
   * open on it: the statements would become part of it.
   */
  connect(): Promise<SqlConnection>;
  /**
   * Calls the listener whenever a connection ends that no call uses, until the returned function is called. Not only if
   * it broke: a client without a connection does not notice that it is cut off. If no library event tells, the driver
   * must have the trait `reportsBreaks: false`.
   */
  readonly watchBreaks: (listener: () => void) => () => void;
  /** Opens a connection beside the pool, with the same settings. Absent: the client is a single connection. */
  readonly connectDedicated?: () => Promise<DedicatedConnection>;
  /** Closes the client. Called only if the driver created it. */
  close(): Promise<void>;
}

/** A prepared statement of an SQLite library. */
export interface SqliteStatement {
  /** The first row; null: there is none. Cheaper than all(). */
  get(...values: readonly SqlValue[]): SqlRow | null;
  all(...values: readonly SqlValue[]): readonly SqlRow[];
  /** The number of rows it changed. */
  run(...values: readonly SqlValue[]): number;
}

/** An open SQLite database. Every call is synchronous, and none waits for a lock: a busy database throws at once. */
export interface SqliteDatabase {
  /** "node:sqlite", "libsql", "better-sqlite3", "bun:sqlite": for messages. */
  readonly library: string;
  prepare(text: string): SqliteStatement;
  exec(text: string): void;
  /** Whether a transaction is open; null: the library does not say. */
  isInTransaction(): boolean | null;
  /** Whether the error says that another connection is writing. */
  isBusyError(error: unknown): boolean;
  close(): void;
}
