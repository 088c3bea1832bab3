/** The types that the files of this folder share. */

import type { SqlResult, SqlValue } from "../drivers/sql/clients/types.ts";

/** mysql is MariaDB, too. */
export type SqlDialect = "postgres" | "mysql" | "sqlite";

/** A connection, a transaction, or a pool of the user. */
export interface SqlHandle {
  readonly dialect: SqlDialect;
  /** "pg", "kysely": for messages. */
  readonly library: string;
  /**
   * Runs one statement. Parameters are numbered ($1, $2) on PostgreSQL and question marks elsewhere; the text contains
   * neither of them in any other place.
   */
  query(text: string, values?: readonly SqlValue[]): Promise<SqlResult>;
  /** Is a transaction open, as the library knows after the last statement? null: it does not know. */
  isInTransaction(): boolean | null;
  /** Listens to the error that a connection emits when the database ends its session. Without a listener it ends the process. */
  expectEndOfSession?(): void;
}

/** One key to fence in the table. */
export interface FenceStep {
  /** Quoted. */
  readonly table: string;
  readonly key: string;
  readonly token: bigint;
  readonly isExclusive: boolean;
  /** The longest idle time of the transaction from now on; 0: leave the session's. */
  readonly idleMs: number;
}

/** Whether a step was accepted. */
export type FenceVerdict = "accepted" | "stale" | "noTransaction";
