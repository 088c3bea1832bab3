/**
 * Databases of the bench's own: installed programs with the durability that they are shipped with, and what they have
 * done.
 */

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

/**
 * The memory that the programs are shipped with, which is less in tests; and connections for all implementations at
 * once.
 */
const POSTGRES_SETTINGS = { shared_buffers: "128MB", max_connections: "300" };
const MARIADB_SETTINGS = { "innodb-buffer-pool-size": "128M", "max-connections": "300" };

/** Starts a PostgreSQL, gives it to `use`, and ends it. */
export function withBenchPostgres<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  return withPostgresServer(POSTGRES_SETTINGS, null, use);
}

/** The same with one that counts statements, by the extension pg_stat_statements, which costs each of them a little. */
export function withCountingPostgres<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  const settings = { ...POSTGRES_SETTINGS, shared_preload_libraries: "pg_stat_statements" };
  return withPostgresServer(settings, "create extension pg_stat_statements", use);
}

const COUNT_STATEMENTS = `select coalesce(sum(calls), 0) as count from pg_stat_statements
  where toplevel and dbid = (select oid from pg_database where datname = $1)`;

async function withPostgresServer<T>(
  settings: Readonly<Record<string, string>>,
  prepare: string | null,
  use: (store: BenchStore) => Promise<T>,
): Promise<T> {
  return withServer(await startPostgres({ isSynced: true, settings }), async (server) => {
    const database = await server.freshDatabase();
    const observer = new Client({ connectionString: server.url });
    await observer.connect();
    const count = async (text: string): Promise<number> => {
      const { rows } = await observer.query(text, [database.name]);
      return Number(rows[0]?.count);
    };
    try {
      if (prepare !== null) await observer.query(prepare);
      return await use({
        address: database.url,
        work: async () => ({
          calls: new Map(prepare === null ? [] : [[STATEMENTS, await count(COUNT_STATEMENTS)]]),
          cpu: processTreeCpuMicros(server.pid),
        }),
      });
    } finally {
      await observer.end();
    }
  });
}

/** The same with a MariaDB. */
export async function withBenchMariaDb<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  return withServer(await startMariaDb({ isSynced: true, settings: MARIADB_SETTINGS }), async (server) => {
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
