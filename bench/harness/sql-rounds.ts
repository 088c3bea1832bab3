/** Rounds on one database. */

import type { SqlNames } from "../implementations/sql.ts";
import { MARIADB, POSTGRES, SQLITE } from "../implementations/sql.ts";
import type { BenchStore } from "./bench-store.ts";
import { STATEMENTS, withBenchMariaDb, withBenchPostgres, withBenchSqlite } from "./database.ts";
import type { LoadOptions, StoreRounds } from "./store-rounds.ts";
import { measureOnStore } from "./store-rounds.ts";

/** A database of the bench, and the implementations on it. */
export interface SqlKind {
  /** Ends the names of its cases. */
  readonly id: string;
  readonly title: string;
  readonly names: SqlNames;
  readonly withStore: <T>(use: (store: BenchStore) => Promise<T>) => Promise<T>;
  /** It tells how many statements it was sent. */
  readonly countsStatements: boolean;
}

export const POSTGRES_KIND: SqlKind = {
  id: "postgres",
  title: "PostgreSQL",
  names: POSTGRES,
  withStore: withBenchPostgres,
  countsStatements: false,
};

export const MARIADB_KIND: SqlKind = {
  id: "mysql",
  title: "MariaDB",
  names: MARIADB,
  withStore: withBenchMariaDb,
  countsStatements: true,
};

export const SQLITE_KIND: SqlKind = {
  id: "sqlite",
  title: "SQLite",
  names: SQLITE,
  withStore: withBenchSqlite,
  countsStatements: false,
};

/** What Holdfast is compared with: libraries, and locks by hand. */
export function listRivals({ advisory, thirdParties }: SqlNames): readonly string[] {
  return advisory === null ? thirdParties : [advisory.byHand, ...thirdParties];
}

export function measureOnDatabase(
  { names, withStore, countsStatements }: SqlKind,
  implementations: readonly string[],
  options: LoadOptions,
): Promise<StoreRounds> {
  const rivals = listRivals(names);
  const kind = {
    withStore,
    isRival: (name: string) => rivals.includes(name),
    countedCommands: () => (countsStatements ? [STATEMENTS] : undefined),
  };
  return measureOnStore(kind, implementations, options);
}
