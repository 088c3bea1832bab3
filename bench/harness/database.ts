/** Databases of the bench's own: installed programs with the durability that they are shipped with, and what they have done. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import { startMariaDb } from "../../test/support/stores/mariadb.ts";
import { startPostgres } from "../../test/support/stores/postgres.ts";
import type { DatabaseServer } from "../../test/support/stores/sql-database.ts";
import type { BenchStore } from "./bench-store.ts";
import { processTreeCpuMicros } from "./process-cpu.ts";

/** The name under which a database counts the statements of its clients. */
export const STATEMENTS = "statements";

/** What the tests set differently from what the programs are shipped with. */
const POSTGRES_DEFAULTS = { shared_buffers: "128MB", max_connections: "100" };
const MARIADB_DEFAULTS = { "innodb-buffer-pool-size": "128M", "max-connections": "151" };

/** Starts a PostgreSQL, gives it to `use`, and ends it. */
export async function withBenchPostgres<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  return withServer(await startPostgres({ isSynced: true, settings: POSTGRES_DEFAULTS }), async (server) => {
    const database = await server.freshDatabase();
    const observer = new Client({ connectionString: server.url });
    await observer.connect();
    try {
      return await use({
        address: database.url,
        work: async () => ({ calls: new Map(), cpu: processTreeCpuMicros(server.pid) }),
        async countConnections() {
          const { rows } = await observer.query("select count(*) from pg_stat_activity where datname = $1", [
            database.name,
          ]);
          return Number(rows[0]?.count);
        },
      });
    } finally {
      await observer.end();
    }
  });
}

/** The same with a MariaDB. */
export async function withBenchMariaDb<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  return withServer(await startMariaDb({ isSynced: true, settings: MARIADB_DEFAULTS }), async (server) => {
    const database = await server.freshDatabase();
    const observer = await createConnection({ uri: server.url });
    const readNumber = async (text: string): Promise<number> => {
      const [rows] = await observer.query(text);
      return Number((rows as Readonly<Record<string, unknown>>[])[0]?.Value);
    };
    let ownStatements = 0;
    try {
      return await use({
        address: database.url,
        async work() {
          const statements = await readNumber("show global status like 'questions'");
          return {
            calls: new Map([[STATEMENTS, statements - ++ownStatements]]),
            cpu: processTreeCpuMicros(server.pid),
          };
        },
        countConnections() {
          ownStatements++;
          return readNumber(
            `select count(*) as Value from information_schema.processlist where db = '${database.name}'`,
          );
        },
      });
    } finally {
      await observer.end();
    }
  });
}

/** A file of SQLite on the disk, in a folder of its own. */
export async function withBenchSqlite<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  try {
    return await use({
      address: `sqlite:${join(folder, "locks.db")}`,
      work: async () => ({ calls: new Map(), cpu: Number.NaN }),
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function withServer<T>(server: DatabaseServer, use: (server: DatabaseServer) => Promise<T>): Promise<T> {
  try {
    return await use(server);
  } finally {
    // its log may contain deadlocks, which rivals run into
    await server.dispose().catch((error: Error) => console.warn(error.message));
  }
}
