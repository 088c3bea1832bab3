/** The rivals on databases, with their own delays between attempts, and as many attempts as it takes. */

import { createPool } from "mysql2";
import { Pool } from "pg";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { openLibsql, sqlitePath } from "./sqlite-database.ts";

const TTL_MS = 30_000;
/** The size of pg's and mysql2's pools by default. */
const MAX_CONNECTIONS = 10;

interface VerrouLock {
  acquire(): Promise<boolean>;
  release(): Promise<void>;
}

interface KyselyModule {
  readonly Kysely: new (options: { readonly dialect: unknown }) => { destroy(): Promise<void> };
  readonly PostgresDialect: new (options: { readonly pool: unknown }) => unknown;
  readonly MysqlDialect: new (options: { readonly pool: unknown }) => unknown;
  readonly SqliteDialect: new (options: { readonly database: unknown }) => unknown;
}

/** Over Kysely, with the client that our driver uses. */
export async function openSqlVerrou(address: string): Promise<LockImplementation<VerrouLock>> {
  const kysely = await loadThirdParty<KyselyModule>("kysely");
  const { LockFactory } = await loadThirdParty<{
    LockFactory: new (store: unknown) => { createLock(key: string, ttl: number): VerrouLock };
  }>("@verrou/core");
  const { kyselyStore } = await loadThirdParty<{ kyselyStore(options: object): { factory(): unknown } }>(
    "@verrou/core/drivers/kysely",
  );
  const connection = new kysely.Kysely({ dialect: createDialect(kysely, address) });
  const factory = new LockFactory(kyselyStore({ connection }).factory());
  // it creates its table meanwhile
  const first = factory.createLock("first", TTL_MS);
  await first.acquire();
  await first.release();
  return {
    async acquire(key) {
      const lock = factory.createLock(key, TTL_MS);
      await repeatAfterDeadlock(() => lock.acquire());
      return lock;
    },
    release: (lock) => repeatAfterDeadlock(() => lock.release()),
    close: () => connection.destroy(),
  };
}

/** MariaDB ends one of two statements that wait for each other, and the library hands its error on. */
async function repeatAfterDeadlock<T>(step: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await step();
    } catch (error) {
      if ((error as { readonly code?: unknown }).code !== "ER_LOCK_DEADLOCK") throw error;
    }
  }
}

function createDialect({ PostgresDialect, MysqlDialect, SqliteDialect }: KyselyModule, address: string): unknown {
  if (address.startsWith("postgres:"))
    return new PostgresDialect({ pool: new Pool({ connectionString: address, max: MAX_CONNECTIONS }) });
  if (address.startsWith("mysql:"))
    return new MysqlDialect({ pool: createPool({ uri: address, connectionLimit: MAX_CONNECTIONS }) });
  return new SqliteDialect({ database: openLibsql(sqlitePath(address)) });
}
