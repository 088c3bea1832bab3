/** Faults in the drivers of databases, and in rows with a version. */

import type { Mutant } from "./mutants.ts";

export const SQL_MUTANTS: readonly Mutant[] = [
  {
    name: "on PostgreSQL, operators of another role that run with the rights of the caller",
    file: "src/drivers/sql/postgres/migration.ts",
    find: "set search_path = pg_catalog, pg_temp ",
    replace: "",
    tests: "test/integration/postgres/requirements.test.ts",
  },
  {
    name: "a row with a version: what the change has made of the version is compared",
    file: "src/optimistic/versioned-row.ts",
    find: "readVersions.get(row) ?? ",
    replace: "",
    tests: "test/integration/sqlite/optimistic.test.ts",
  },
];
