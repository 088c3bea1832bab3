/** A row that counts who is inside, on either database. */

import mysql from "mysql2/promise";
import { Pool } from "pg";

export interface DatabaseClient {
  /** How many are inside now. */
  enter(): Promise<number>;
  leave(): Promise<void>;
  close(): Promise<void>;
}

/** The statements that create the row. */
export const CREATE_COUNTER: readonly string[] = [
  "create table counter (inside int not null, entered int not null)",
  "insert into counter values (0, 0)",
];

const ENTER = "update counter set inside = inside + 1, entered = entered + 1";
const READ = "select inside from counter";
const LEAVE = "update counter set inside = inside - 1";

export async function openCounter(url: string): Promise<DatabaseClient> {
  if (url.startsWith("postgres:")) {
    const pool = new Pool({ connectionString: url, max: 1 });
    return {
      async enter() {
        await pool.query(ENTER);
        return Number((await pool.query(READ)).rows[0]?.inside);
      },
      leave: async () => void (await pool.query(LEAVE)),
      close: () => pool.end(),
    };
  }
  const connection = await mysql.createConnection({ uri: url });
  return {
    async enter() {
      await connection.query(ENTER);
      const [rows] = await connection.query(READ);
      return Number((rows as unknown as readonly { readonly inside: number }[])[0]?.inside);
    },
    leave: async () => void (await connection.query(LEAVE)),
    close: () => connection.end(),
  };
}
