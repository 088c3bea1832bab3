/** PostgreSQL and MariaDB behind one small interface, so that a strategy is written once. */

import type { Driver } from "holdfast";
import { mysql } from "holdfast/mysql";
import { postgres } from "holdfast/postgres";
import { createPool } from "mysql2/promise";
import { Pool } from "pg";

type Row = Readonly<Record<string, unknown>>;

/** One connection of the pool. */
export interface Connection {
  /** As its library made it. */
  readonly handle: object;
  /** Parameters are question marks. */
  query(text: string, values?: readonly (string | number)[]): Promise<readonly Row[]>;
}

export interface Database {
  readonly name: string;
  /** Runs `work` on a connection of the pool, and waits while all are in use. */
  use<T>(work: (connection: Connection) => Promise<T>): Promise<T>;
  /** Locks in the same database, over the same pool. */
  createDriver(): Driver;
  close(): Promise<void>;
}

/** Hundreds of calls wait for ten connections; and a temporary server does not sync its commits, of which open() warns. */
const DRIVER_OPTIONS = { commandTimeoutMs: 30_000, silenceWarnings: ["durability"] } as const;

/** @param size how many connections the pool may open */
export function openDatabase(url: string, size: number): Database {
  return url.startsWith("postgres") ? openPostgres(url, size) : openMariaDb(url, size);
}

function openPostgres(url: string, size: number): Database {
  const pool = new Pool({ connectionString: url, max: size });
  return {
    name: "PostgreSQL",
    async use(work) {
      const client = await pool.connect();
      try {
        return await work({
          handle: client,
          async query(text, values = []) {
            let position = 0;
            const { rows } = await client.query(
              text.replace(/\?/g, () => `$${++position}`),
              values,
            );
            return rows;
          },
        });
      } finally {
        client.release();
      }
    },
    createDriver: () => postgres(pool, DRIVER_OPTIONS),
    close: () => pool.end(),
  };
}

function openMariaDb(url: string, size: number): Database {
  const pool = createPool({ uri: url, connectionLimit: size });
  return {
    name: "MariaDB",
    async use(work) {
      const connection = await pool.getConnection();
      try {
        return await work({
          handle: connection,
          async query(text, values = []) {
            const [rows] = await connection.query(text, [...values]);
            return Array.isArray(rows) ? (rows as Row[]) : [];
          },
        });
      } finally {
        connection.release();
      }
    },
    createDriver: () => mysql(pool, DRIVER_OPTIONS),
    close: () => pool.end(),
  };
}

/** Rolls back if `work` throws. */
export async function runTransaction<T>(connection: Connection, work: () => Promise<T>): Promise<T> {
  await connection.query("begin");
  try {
    const result = await work();
    await connection.query("commit");
    return result;
  } catch (error) {
    await connection.query("rollback");
    throw error;
  }
}
